"""Multi-head attention of the transformer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp

from mgraph import (
    ElementTypeError,
    Node,
    ShapeError,
    bdot,
    cached_attention,
    dot_product_attention,
    dropout,
    flatten,
    reshape,
    rows,
    softmax,
    transpose,
)
from mgraph.inits import Initializer

from .dense import Affine
from .dropping import rate
from .layer import Layer


def log_mask(mask: Node) -> Node:
    """0 where ``mask`` is 1, and where it is 0 a number so low that softmax yields 0.

    ``(1 - mask) * max(lowest / 2, -99999999)`` with the lowest number of the mask's element type, as in
    Marian's transformer. ``ElementTypeError`` for a mask of integers.
    """
    if not jnp.issubdtype(mask.value_type.dtype, jnp.floating):
        raise ElementTypeError(f"log_mask: expected a mask of floating point, got {mask.value_type}")
    lowest = float(jnp.finfo(mask.value_type.dtype).min)
    return (1 - mask) * max(lowest / 2, -99999999.0)


def split_heads(x: Node, heads: int) -> Node:
    """``(batch, time, dim)`` as ``(batch, heads, time, dim / heads)``."""
    batch, time, dim = x.shape
    return transpose(reshape(x, (batch, time, heads, dim // heads)), (0, 2, 1, 3))


def join_heads(x: Node) -> Node:
    """``(batch, heads, time, dim / heads)`` as ``(batch, time, dim)``."""
    batch, heads, time, depth = x.shape
    return reshape(transpose(x, (0, 2, 1, 3)), (batch, time, heads * depth))


def laid_out(x: Node, places: Node | None) -> Node:
    """``x (bins, width, dim)``, sentences without padding between them, as ``(batch, length, dim)``.

    places: integers ``(batch, length)``, the place ``bin * width + column`` of each word of a sentence, of
    any where it has none. None if ``x`` is laid out already.
    """
    if places is None:
        return x
    words = reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))
    return reshape(rows(words, flatten(places)), (*places.shape, x.shape[2]))


class MultiHeadAttention(Layer):
    """``[softmax(q_h k_h^T / sqrt(dim / heads) + mask) v_h for each head h] Wo + bo``
    with ``q = x Wq + bq``, ``k = keys Wk + bk``, ``v = values Wv + bv``.

    Parameters: ``{prefix}_Wq``, ``_Wk``, ``_Wv``, ``_Wo``, all ``(dim, dim)``, and ``_bq``, ``_bk``,
    ``_bv``, ``_bo``, all ``(1, dim)``; without ``projection`` no ``Wo`` and ``bo``
    (``transformer-no-projection``), without ``bias`` none of the ``b``. ``dropout`` drops attention weights
    (``transformer-dropout-attention``). ``ShapeError`` if the heads do not divide ``dim``.
    Source: Vaswani et al. 2017; Marian's ``MultiHead``.
    """

    def __init__(
        self,
        prefix: str,
        dim: int,
        heads: int,
        *,
        projection: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
        init: Initializer | None = None,
    ) -> None:
        if heads < 1 or dim % heads:
            raise ShapeError(f"{prefix}: {heads} heads do not divide {dim} features")
        self.dim, self.heads, self.dropout = dim, heads, dropout
        self.query, self.key, self.value, output = (
            Affine(prefix, dim, dim, part, init=init, bias=bias) for part in "qkvo"
        )
        self.output = output if projection else None

    def __call__(self, x: Node, keys: Node, values: Node, mask: Node) -> Node:
        """``x (batch, time, dim)`` attends to ``keys`` and ``values (batch, places, dim)``.

        ``mask`` is a ``log_mask`` that fits ``(batch, heads, time, places)``, usually
        ``(batch, 1, 1, places)``. The result has the shape of ``x``.
        """
        return self.attend(x, self.keys(keys), self.values(values), mask)

    def keys(self, x: Node) -> Node:
        """``x Wk + bk`` of ``x (batch, places, dim)`` as ``(batch, heads, places, dim / heads)``."""
        return split_heads(self.key(x), self.heads)

    def values(self, x: Node) -> Node:
        """``x Wv + bv`` of ``x (batch, places, dim)`` as ``(batch, heads, places, dim / heads)``."""
        return split_heads(self.value(x), self.heads)

    def attend(self, x: Node, keys: Node, values: Node, mask: Node) -> Node:
        """The same for ``keys`` and ``values`` that are already projected and split."""
        query = split_heads(self.query(x), self.heads)
        dropped = rate(x.graph, self.dropout)
        return self._joined(dot_product_attention(query, keys, values, mask, dropped))

    def attend_parts(
        self, x: Node, used: Node, keys: Sequence[Node], values: Sequence[Node], masks: Sequence[Node]
    ) -> Node:
        """``attend`` to keys and values in parts, each with its mask, up to the place ``used``; without
        dropout. See ``cached_attention``."""
        if len(keys) == 1:
            return self.attend(x, keys[0], values[0], masks[0])
        query = split_heads(self.query(x), self.heads)
        return self._joined(cached_attention(query, used, keys, values, masks))

    def weights(self, x: Node, keys: Node, mask: Node) -> Node:
        """The weights ``(batch, heads, time, places)`` of projected and split ``keys``, before dropout."""
        query = split_heads(self.query(x), self.heads)
        scale = 1 / math.sqrt(self.dim // self.heads)
        return softmax(bdot(query, keys, False, True, scale) + mask)

    def gathered(self, weights: Node, values: Node) -> Node:
        """The result of ``attend`` for these ``weights``, for callers that need both."""
        return self._joined(bdot(dropout(weights, rate(weights.graph, self.dropout)), values))

    def _joined(self, y: Node) -> Node:
        joined = join_heads(y)
        return joined if self.output is None else self.output(joined)
