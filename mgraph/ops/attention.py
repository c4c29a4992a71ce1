"""Dot-product attention as one node; the additive attention of recurrent decoders is ``att_ops``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..cases import Case, Convention
from ..errors import ArgumentError, ShapeError
from ..node import Node
from ..platforms import flash_attention, on_cuda_by
from ..shape import Shape, broadcasts_to
from ..specs import Spec, Specs, spec_of
from .dropout import mask_for
from .operands import FloatNodeOp, Gradients, accumulable, as_positions, is_number, node, nodes_in, refusal
from .product import matmul, matmul_of_columns
from .reduce import divisor, exponentials, largest

T = TypeVar("T")

FLASH_LENGTH = 128
"""From this many places on, cuDNN's flash attention is faster than our own rule, measured on an H200 with
8,192 words and 16 heads of 64 features. With 32 places it takes three times as long, with 1,024 a third."""


class DotProductAttentionNodeOp(FloatNodeOp):
    """Children: queries, keys, values, then a mask if ``masked`` and a dropout mask if ``dropped``. The
    backward rule recomputes the weights; within one program XLA computes them once. Like softmax's rule, it
    divides by the weights' computed sum.
    """

    type = "dot_product_attention"
    stored_by_loops = True
    scale: float
    """A number that is known while a program is made, as GPU kernels require."""
    masked: bool = False
    hiding: bool = False
    """Whether the mask does nothing but hide places."""
    dropped: bool = False
    cases = (
        Case((2, 3, 4), (2, 5, 4), (2, 5, 3), scale=0.5),
        Case((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (2, 1, 1, 5), scale=0.5, masked=True),
        Case((2, 3, 4), (5, 4), (2, 5, 2), (2, 3, 5), scale=1.0, dropped=True),
        Case((1, 2, 1, 3), (2, 1, 4, 3), (4, 2), (4,), (2, 1, 1, 4), scale=2.0, masked=True, dropped=True),
    )

    def new_spec(self, query: Spec, keys: Spec, values: Spec, *masks: Spec) -> Specs:
        if len(masks) != self.masked + self.dropped:
            raise ArgumentError(f"expected {self.masked + self.dropped} masks after query, keys and values")
        shapes = [query.shape, keys.shape, values.shape]
        if min(map(len, shapes)) < 2:
            raise ShapeError(f"expected batches of matrices, got {', '.join(map(str, shapes))}")
        (rows, depth), (places, width), (held, columns) = (shape[-2:] for shape in shapes)
        if depth != width or places != held:
            raise ShapeError(
                f"expected keys as deep as queries and a value for each key, got {query.shape}, {keys.shape} "
                f"and {values.shape}"
            )
        batch = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
        weights = (*batch, rows, places)
        for mask in masks:
            if not broadcasts_to(mask.shape, weights):
                raise ShapeError(f"expected a mask that fits the weights {weights}, got {mask.shape}")
        return spec_of((*batch, rows, columns), query.type)

    def forward_ops(self, query: Array, keys: Array, values: Array, *masks: Array) -> Array:
        def without_gradients(*given: Array) -> Array:
            return self._by_kernel(self._attend, self._flash, *given)

        return self._by_kernel(without_gradients, self._flash_value, query, keys, values, *masks)

    def backward_ops(
        self, adj: Array, y: Array, query: Array, keys: Array, values: Array, *masks: Array
    ) -> Gradients:
        given = adj, query, keys, values, *masks
        by_operands = self._by_kernel(self._operand_gradients, self._flash_gradients, *given)
        return *by_operands, *self._mask_gradients(*given)

    def _by_kernel(self, plain: Callable[..., Any], kernel: Callable[..., Any], *args: Array) -> Any:
        """The result of ``kernel`` where it is supported (16-bit numbers, equal batch and head axes, no
        dropout, no mask that adds to scores) and faster (long sentences), else of ``plain``."""
        *_, query, keys, values = args[: len(args) - self.masked - self.dropped]
        batches = {x.shape[:-2] for x in (query, keys, values)}
        added = self.masked and not self.hiding
        if added or self.dropped or query.dtype.itemsize > 2 or query.ndim != 4 or len(batches) > 1:
            return plain(*args)
        if keys.shape[-2] < FLASH_LENGTH:
            return plain(*args)
        return on_cuda_by(kernel, plain, *args)

    # -- in plain JAX

    def _attend(self, query: Array, keys: Array, values: Array, *masks: Array) -> Array:
        _, kept = self._weights(query, keys, masks)
        return matmul(kept, values, False, False).astype(query.dtype)

    def _weights(self, query: Array, keys: Array, masks: tuple[Array, ...]) -> tuple[Array, Array]:
        """``softmax(scale query keys^T + mask)`` in the accumulation type, and the weights after dropout in
        the type of ``query``."""
        _, powers, total = exponentials(self._scores(query, keys, masks), -1)
        weights = powers / total
        kept = weights.astype(query.dtype)
        return weights, kept * masks[-1] if self.dropped else kept

    def _scores(self, query: Array, keys: Array, masks: tuple[Array, ...]) -> Array:
        """``scale query keys^T + mask``."""
        scores = matmul(query, keys, False, True) * self.scale
        return scores + accumulable(masks[0]) if self.masked else scores

    def _operand_gradients(
        self, adj: Array, query: Array, keys: Array, values: Array, *masks: Array
    ) -> tuple[Array, ...]:
        weights, kept = self._weights(query, keys, masks)
        slopes = self._slopes(weights, adj, values, masks).astype(query.dtype)
        gradients = (
            matmul(slopes, keys, False, False) * self.scale,
            matmul_of_columns(slopes, query, True, False) * self.scale,
            matmul_of_columns(kept, adj, True, False),
        )
        return tuple(gradient.astype(query.dtype) for gradient in gradients)

    def _mask_gradients(
        self, adj: Array, query: Array, keys: Array, values: Array, *masks: Array
    ) -> tuple[Array, ...]:
        weights, _ = self._weights(query, keys, masks)
        gradients = []
        if self.masked:
            gradients.append(self._slopes(weights, adj, values, masks))
        if self.dropped:
            gradients.append(weights * matmul(adj, values, False, True))
        return tuple(gradient.astype(query.dtype) for gradient in gradients)

    def _slopes(self, weights: Array, adj: Array, values: Array, masks: tuple[Array, ...]) -> Array:
        """The gradient for the scores, after ``scale`` and mask."""
        by_weights = matmul(adj, values, False, True)
        if self.dropped:
            by_weights = _from_that_of_largest(weights, by_weights * accumulable(masks[-1]))
        total = divisor(jnp.sum(weights, -1, keepdims=True))
        return weights * (by_weights - jnp.sum(weights * by_weights, -1, keepdims=True) / total)

    # -- by a kernel

    def _flash(self, query: Array, keys: Array, values: Array, *mask: Array) -> Array:
        return flash_attention(query, keys, values, mask[0] == 0 if mask else None, self.scale)

    def _flash_value(self, *operands: Array) -> Array:
        """The value, from the call that the gradients need: within one program XLA makes it once for both."""
        return self._flash_with_pull(*operands)[0]

    def _flash_gradients(self, adj: Array, *operands: Array) -> tuple[Array, ...]:
        """The gradients from the kernel's own rule, which stores no weights either."""
        _, pull = self._flash_with_pull(*operands)
        gradients: tuple[Array, ...] = pull(adj)
        return gradients

    def _flash_with_pull(self, query: Array, keys: Array, values: Array, *mask: Array) -> tuple[Array, Any]:
        value: Array
        value, pull = jax.vjp(lambda *operands: self._flash(*operands, *mask), query, keys, values)
        return value, pull


def _from_that_of_largest(weights: Array, by_weights: Array) -> Array:
    """``by_weights`` minus its element for the largest weight, which becomes 0. Where that weight is 1, its
    slope is then 0, too, even if the processor subtracts the mean from a product that is not yet rounded.
    """
    top = jnp.where(weights < largest(weights, -1), -jnp.inf, by_weights)
    most = jnp.max(top, -1, keepdims=True, initial=-jnp.inf)
    return jnp.where(top == most, 0, by_weights - most)


def _domain(used: str, parts: int) -> tuple[str, ...]:
    return ("real", used, *["real"] * (3 * parts))


class CachedAttentionNodeOp(DotProductAttentionNodeOp):
    """Children: queries, the places in use, then the keys, values and masks of all parts."""

    type = "cached_attention"
    index_children = (1,)
    stored_by_loops = False
    masked = True
    parts: int
    cases = (
        Case(
            (2, 3, 4), (2,), (2, 5, 4), (2, 5, 3), (2, 1, 5), domain=_domain("index:5", 1), parts=1, scale=1.0
        ),
        Case(
            *((3, 4), (1,), (5, 4), (6, 4), (5, 3), (6, 3), (5,), (6,)),
            domain=_domain("index:5", 2),
            parts=2,
            scale=1.0,
        ),
        Case(
            *((2, 3, 4), (2, 3), (2, 1, 4), (2, 6, 4), (2, 1, 3), (2, 6, 3), (2, 3, 1), (2, 3, 6)),
            domain=_domain("index:7", 2),
            parts=2,
            scale=1.0,
        ),
        Case(
            *((2, 2, 3, 4), (), (2, 2, 2, 4), (2, 2, 3, 4), (2, 2, 4, 4), (2, 2, 2, 4), (2, 2, 3, 4)),
            *((2, 2, 4, 4), (2, 1, 3, 2), (2, 1, 3, 3), (2, 1, 3, 4)),
            domain=_domain("index:9", 3),
            parts=3,
            scale=0.5,
        ),
    )

    # The second part is not read: whatever it holds, it has no gradient.
    conventions = (
        Convention(
            *([[1.0]], [0], [[1.0]], [[math.nan]], [[2.0]], [[math.inf]], [[0.0]], [[math.nan]]),
            gradients=([[0]], None, [[0]], [[0]], [[1]], [[0]], [[0]], [[0]]),
            parts=2,
            scale=1.0,
        ),
        Convention(
            *([[-math.inf]], [0], [[1.0]], [[1.0]], [[2.0]], [[2.0]], [[0.0]], [[0.0]]),
            gradients=([[0]], None, [[math.nan]], [[0]], [[0]], [[0]], [[0]], [[0]]),
            parts=2,
            scale=1.0,
        ),
    )

    def new_spec(self, query: Spec, used: Spec, *others: Spec) -> Specs:
        parts = self._by_part(others)
        every = [super(CachedAttentionNodeOp, self).new_spec(query, *part) for part in parts]
        fixed = {(k.shape[:-2], v.shape[:-2], v.shape[-1], mask.shape[:-1]) for k, v, mask in parts}
        if len(fixed) > 1:
            raise ShapeError(f"expected parts that differ in the number of places, got {parts}")
        return every[0]

    def forward_ops(self, query: Array, used: Array, *others: Array) -> Array:
        (first, *more), start = self._by_part(others), 0
        used = as_positions(used)
        found = self._attended(query, *first)
        for (keys, values, mask), before in zip(more, self._by_part(others), strict=False):
            start += before[0].shape[-2]
            found = jax.lax.cond(
                jnp.max(used, initial=0) >= start,
                lambda found, *part: _together(found, self._attended(*part)),
                lambda found, *_: found,
                *(found, query, keys, values, mask),
            )
        _, total, y = found
        return (y / total).astype(query.dtype)

    def backward_ops(self, adj: Array, y: Array, query: Array, used: Array, *others: Array) -> Gradients:
        # A part that is not read may hold anything: it affects no gradient, and no NaN reaches its gradients.
        read, parts, ends = [], [], [0]
        used = as_positions(used)
        for keys, values, mask in self._by_part(others):
            read.append(jnp.max(used, initial=0) >= ends[-1])
            mask = jnp.broadcast_to(mask, (*mask.shape[:-1], keys.shape[-2]))
            hidden = zip((keys, values, mask), (0, 0, -jnp.inf), strict=True)
            parts.append([jnp.where(read[-1], x, instead) for x, instead in hidden])
            ends.append(ends[-1] + keys.shape[-2])
        axes = -2, -2, -1
        whole = [jnp.concatenate(each, axis) for *each, axis in zip(*parts, axes, strict=True)]
        by_query, *by_others = self._operand_gradients(adj, query, *whole)
        by_others += self._mask_gradients(adj, query, *whole)
        by_part = [jnp.split(by, ends[1:-1], axis) for by, axis in zip(by_others, axes, strict=True)]
        return (
            by_query,
            None,
            *(jnp.where(r, x, 0) for by in by_part for r, x in zip(read, by, strict=True)),
        )

    def _scores(self, query: Array, keys: Array, masks: tuple[Array, ...]) -> Array:
        """The scores; -inf where nothing is read, although the product of an infinite query and 0 is NaN."""
        return jnp.where(masks[0] == -jnp.inf, -jnp.inf, super()._scores(query, keys, masks))

    def _by_part(self, others: Sequence[T]) -> list[tuple[T, ...]]:
        """Keys, values and mask of each part."""
        return [tuple(others[i :: self.parts]) for i in range(self.parts)]

    def _attended(self, query: Array, keys: Array, values: Array, mask: Array) -> tuple[Array, Array, Array]:
        """The maximum of the scores, the sum of their exponentials, and the sum of the values weighted by
        the exponentials."""
        scores = matmul(query, keys, False, True) * self.scale + accumulable(mask)
        top = largest(scores, -1)
        _, powers, total = exponentials(scores, -1)
        return top, total, accumulable(matmul(powers.astype(query.dtype), values, False, False))


def _together(one: tuple[Array, ...], other: tuple[Array, ...]) -> tuple[Array, ...]:
    (top, *sums), (other_top, *others) = one, other
    highest = jnp.maximum(top, other_top)
    mine, its = jnp.exp(top - highest), jnp.exp(other_top - highest)
    return highest, *(mine * a + its * b for a, b in zip(sums, others, strict=True))


def cached_attention(
    query: Node, used: Node, keys: Sequence[Node], values: Sequence[Node], masks: Sequence[Node]
) -> Node:
    """``dot_product_attention`` to keys and values that are kept in parts, the last of which may be unused.

    With ``n_i`` places in part i, place p overall is place ``p - (n_1 + ... + n_(i-1))`` of part i. ``used``:
    integers of any shape; the largest is the last place in use. Parts beyond that place are not read, as if
    they were masked. ``masks``: added to the scores, one for each part. ``ArgumentError`` unless there are as
    many keys as values and masks, and at least one; ``ShapeError`` if shapes do not fit, or if parts differ
    in more than the number of places.

    Shape: (..., m, k), any, and for part i (..., n_i, k), (..., n_i, v) and (..., m, n_i) to (..., m, v); the
    axes before them broadcast.
    Gradient: as ``dot_product_attention`` to all parts at once; 0 for parts that are not read.
    Source: no counterpart in Marian, whose caches grow by one step at a time.
    """
    keys, values, masks = (nodes_in("cached_attention", part) for part in (keys, values, masks))
    if not keys or len({len(keys), len(values), len(masks)}) > 1:
        counts = f"{len(keys)} keys, {len(values)} values and {len(masks)} masks"
        raise ArgumentError(f"cached_attention expects keys, values and a mask for each part, got {counts}")
    *_, depth = _split("cached_attention", query)
    scale = 1 / math.sqrt(max(depth, 1))
    return CachedAttentionNodeOp(query, used, *keys, *values, *masks, parts=len(keys), scale=scale)


def dot_product_attention(
    query: Node,
    keys: Node,
    values: Node,
    mask: Node | None = None,
    dropout: float | Node | None = None,
    scale: float | None = None,
    *,
    hiding: bool = False,
) -> Node:
    """``(softmax(scale query keys^T + mask) * d) values``: for each query the mean of the values, weighted by
    how well their keys fit.

    ``mask``: added to the scores, of a shape that broadcasts to (..., m, n); for example 0 to attend and a
    very low number not to. ``hiding``: whether the mask holds only two such numbers. ``dropout``: a
    probability to draw ``d`` with, or ``d`` itself, as for ``dropout``; each weight is dropped independently.
    ``scale``: ``1 / sqrt(k)`` by default. Scores and softmax are computed in float32 for 16-bit nodes.

    On CUDA, cuDNN's flash attention computes the value and the gradients for ``query``, ``keys`` and
    ``values``, for 16-bit nodes with four axes and equal batches, without dropout, with at least 128 keys
    and with no mask or a ``hiding`` one, if JAX supports the shapes. ``ShapeError`` if depths, numbers of
    keys and values, or batches do not fit.

    Shape: (..., m, k), (..., n, k) and (..., n, v) to (..., m, v); the axes before them broadcast.
    Gradient: with p the weights and ``u = d (adj values^T)``, ``s = p (u - sum(p u))`` for ``mask``,
    ``scale s keys`` for ``query``, ``scale s^T query`` for ``keys``, ``(p d)^T adj`` for ``values``.
    Source: Vaswani et al. 2017; no counterpart in Marian, whose ``MultiHead`` composes it.
    """
    name = "dot_product_attention"
    batch, rows, depth = _split(name, query)
    places = _split(name, keys)[1]
    batches = batch, *(_split(name, x)[0] for x in (keys, values))
    if scale is None:
        scale = 1 / math.sqrt(max(depth, 1))
    elif not is_number(scale):
        raise ArgumentError(f"{name} expects a number for scale, got {scale!r}")
    children = [query, keys, values] + ([] if mask is None else [node(name, mask)])
    drop = mask_for(name, query, dropout, _weights_shape(batches, rows, places, children), None)
    return DotProductAttentionNodeOp(
        *children,
        *(() if drop is None else (drop,)),
        scale=float(scale),
        masked=mask is not None,
        hiding=hiding,
        dropped=drop is not None,
    )


def _split(op: str, x: Node) -> tuple[Shape, int, int]:
    """The shape as batch, rows and columns."""
    if len(node(op, x).shape) < 2:
        raise refusal(op, "expected batches of matrices", x)
    *batch, rows, columns = x.shape
    return tuple(batch), rows, columns


def _weights_shape(batches: Sequence[Shape], rows: int, places: int, children: Sequence[Node]) -> Shape:
    try:
        return *np.broadcast_shapes(*batches), rows, places
    except ValueError:
        raise refusal("dot_product_attention", "the axes before the last two do not fit", *children) from None
