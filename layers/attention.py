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
    reshape,
    softmax,
    transpose,
)
from mgraph.inits import Initializer
from mgraph.ops.operands import node

from .dense import Affine
from .dropping import probability, rate
from .layer import Layer, size
from .packing import PackedWords, laid_out, taken_up


def log_mask(mask: Node) -> Node:
    """0 where ``mask`` is 1; where ``mask`` is 0, a number so low that softmax yields 0.

    ``(1 - mask) * max(lowest / 2, -99999999)``, where ``lowest`` is the lowest number of the mask's element
    type, as in Marian's transformer. ``ElementTypeError`` for a mask of integers.
    """
    if not jnp.issubdtype(node("log_mask", mask).value_type.dtype, jnp.floating):
        raise ElementTypeError(f"log_mask: expected a mask of floating point, got {mask.value_type}")
    lowest = float(jnp.finfo(mask.value_type.dtype).min)
    return (1 - mask) * max(lowest / 2, -99999999.0)


def split_heads(x: Node, heads: int) -> Node:
    """``(batch, time, dim)`` as ``(batch, heads, time, dim / heads)``; ``ShapeError`` for other axes, or if
    ``heads`` does not divide ``dim``."""
    if len(node("split_heads", x).shape) != 3 or x.shape[2] % size("heads", heads):
        raise ShapeError(f"split_heads: expected (batch, time, {heads} * depth), got {x.shape}")
    batch, time, dim = x.shape
    return transpose(reshape(x, (batch, time, heads, dim // heads)), (0, 2, 1, 3))


def join_heads(x: Node) -> Node:
    """``(batch, heads, time, dim / heads)`` as ``(batch, time, dim)``; ``ShapeError`` for other axes."""
    if len(node("join_heads", x).shape) != 4:
        raise ShapeError(f"join_heads: expected (batch, heads, time, depth), got {x.shape}")
    batch, heads, time, depth = x.shape
    return reshape(transpose(x, (0, 2, 1, 3)), (batch, time, heads * depth))


class MultiHeadAttention(Layer):
    """``[softmax(q_h k_h^T / sqrt(dim / heads) + mask) v_h for each head h] Wo + bo``
    with ``q = x Wq + bq``, ``k = keys Wk + bk``, ``v = values Wv + bv``.

    Parameters: ``{prefix}_Wq``, ``_Wk``, ``_Wv``, ``_Wo``, all ``(dim, dim)``, and ``_bq``, ``_bk``,
    ``_bv``, ``_bo``, all ``(1, dim)``. Without ``projection`` there is no ``Wo`` or ``bo``
    (``transformer-no-projection``); without ``bias`` there are no biases. ``dropout`` drops attention weights
    (``transformer-dropout-attention``). ``ShapeError`` for sizes that are not positive ints, or if
    ``heads`` does not divide ``dim``; ``ArgumentError`` unless ``0 <= dropout < 1``.
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
        dim, heads = size(f"dim of {prefix!r}", dim), size(f"heads of {prefix!r}", heads)
        if dim % heads:
            raise ShapeError(f"{prefix}: {heads} heads do not divide {dim} features")
        self.dim, self.heads, self.dropout = dim, heads, probability(f"dropout of {prefix!r}", dropout)
        self.query, self.key, self.value, output = (
            Affine(prefix, dim, dim, part, init=init, bias=bias) for part in "qkvo"
        )
        self.output = output if projection else None

    def __call__(
        self, x: Node, keys: Node, values: Node, mask: Node, packing: PackedWords | None = None
    ) -> Node:
        """``x (batch, time, dim)`` attends to ``keys`` and ``values (batch, places, dim)``.

        ``mask`` is a ``log_mask`` that broadcasts to ``(batch, heads, time, places)``, usually
        ``(batch, 1, 1, places)``. The result has the shape of ``x``. With ``packing``, ``x``, ``keys`` and
        ``values`` are packed, ``(rows, width, dim)``, and laid out only between the projections.
        ``ShapeError`` for nodes without three axes.
        """
        return self.attend(x, self.keys(keys, packing), self.values(values, packing), mask, packing)

    def keys(self, x: Node, packing: PackedWords | None = None) -> Node:
        """``x Wk + bk`` of ``x (batch, places, dim)`` as ``(batch, heads, places, dim / heads)``."""
        return self.split(self.key(x), packing)

    def values(self, x: Node, packing: PackedWords | None = None) -> Node:
        """``x Wv + bv`` of ``x (batch, places, dim)`` as ``(batch, heads, places, dim / heads)``."""
        return self.split(self.value(x), packing)

    def split(self, projected: Node, packing: PackedWords | None = None) -> Node:
        """``projected (batch, time, dim)``, or with ``packing`` ``(rows, width, dim)``, laid out as
        ``(batch, heads, time, dim / heads)``; ``ShapeError`` unless it has three axes."""
        if len(projected.shape) != 3:
            raise ShapeError(
                f"MultiHeadAttention with {self.query.weight.name!r}: expected (batch, time, {self.dim}), got"
                f" {projected.shape}"
            )
        return split_heads(laid_out(projected, packing), self.heads)

    def attend(
        self, x: Node, keys: Node, values: Node, mask: Node, packing: PackedWords | None = None
    ) -> Node:
        """A call's result for ``keys`` and ``values`` that are already projected, laid out and split;
        ``packing`` is that of ``x``."""
        queries = self._queries(x, packing)
        p = rate(x.graph, self.dropout)
        joined = dot_product_attention(queries, keys, values, mask, p, hiding=True)
        return self._joined(joined, packing)

    def attend_parts(
        self, x: Node, used: Node, keys: Sequence[Node], values: Sequence[Node], masks: Sequence[Node]
    ) -> Node:
        """``attend`` without dropout to keys and values kept in parts, each with its mask, up to the place
        ``used``. See ``cached_attention``."""
        if len(keys) == 1:
            return self.attend(x, keys[0], values[0], masks[0])
        return self._joined(cached_attention(self._queries(x, None), used, keys, values, masks), None)

    def weights(self, x: Node, keys: Node, mask: Node, packing: PackedWords | None = None) -> Node:
        """The weights ``(batch, heads, time, places)`` for projected and split ``keys``, before dropout."""
        scale = 1 / math.sqrt(self.dim // self.heads)
        return softmax(bdot(self._queries(x, packing), keys, False, True, scale) + mask)

    def gathered(self, weights: Node, values: Node, packing: PackedWords | None = None) -> Node:
        """The result of ``attend`` for these ``weights``, for callers that need both."""
        return self._joined(bdot(dropout(weights, rate(weights.graph, self.dropout)), values), packing)

    def _queries(self, x: Node, packing: PackedWords | None) -> Node:
        return self.split(self.query(x), packing)

    def _joined(self, y: Node, packing: PackedWords | None) -> Node:
        joined = taken_up(join_heads(y), packing)
        return joined if self.output is None else self.output(joined)
