"""Operators that sort: the largest or smallest elements along an axis, or all, with their positions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import flag, whole
from ..cases import Case
from ..errors import ShapeError
from ..node import Node, UnaryNodeOp
from ..specs import Spec, Specs, is_real
from .index import places_along
from .operands import Gradients, axis_in
from .structure import TupleViewNodeOp, get


class OrderNodeOp(UnaryNodeOp):
    """Base of the operations with two outputs, values and their uint32 positions along ``axis``.

    Equal values keep their order. NaN is larger than all numbers.
    """

    axis: int
    descending: bool = True

    def backward_ops(self, adj: tuple[Array, ...], val: tuple[Array, ...], x: Array) -> Gradients:
        return (jnp.zeros_like(x).at[places_along(val[1], self.axis)].add(adj[0]),)


class TopKNodeOp(OrderNodeOp):
    type = "topk"
    k: int
    cases = (
        Case((4, 7), domain="distinct", k=3, axis=1),
        Case((4, 3), domain="distinct", k=2, axis=0, descending=False),
        Case((4, 3), domain="distinct", k=1, axis=1),
        Case((4, 3), domain="distinct", k=1, axis=0, descending=False),
    )

    def new_spec(self, x: Spec) -> Specs:
        if not 1 <= self.k <= x.shape[self.axis]:
            raise ShapeError(f"expected 1 <= k <= {x.shape[self.axis]}, the size of the axis, got {self.k}")
        return super().new_spec(x)

    def forward_ops(self, x: Array) -> tuple[Array, Array]:
        if self.k == 1:
            positions = self._best(x)
        else:
            _, positions = jax.lax.top_k(self._keys(jnp.moveaxis(x, self.axis, -1)), self.k)
            positions = jnp.moveaxis(positions, -1, self.axis)
        return jnp.take_along_axis(x, positions, self.axis), positions.astype(jnp.uint32)

    def _best(self, x: Array) -> Array:
        """The position of the first of the largest, or smallest, elements."""
        if self.descending:
            return jnp.argmax(x, self.axis, keepdims=True)
        if not is_real(x):
            return jnp.argmin(x, self.axis, keepdims=True)
        least = jnp.min(jnp.where(jnp.isnan(x), jnp.inf, x), self.axis, keepdims=True)
        return jnp.argmax(x == least, self.axis, keepdims=True)

    def _keys(self, x: Array) -> Array:
        """The keys that ``top_k`` sorts, the largest first. ``top_k`` distinguishes -0 from 0, and NaNs by
        their sign; here all zeros share a key, and so do all NaNs."""
        if not is_real(x):
            return x if self.descending else ~x
        x = jnp.where(x == 0, 0, x)
        return (
            jnp.where(jnp.isnan(x), jnp.nan, x)
            if self.descending
            else jnp.where(jnp.isnan(x), -jnp.nan, 0 - x)
        )


class SortNodeOp(OrderNodeOp):
    type = "sort"
    cases = (
        Case((4, 5), domain="distinct", axis=1),
        Case((4, 3), domain="distinct", axis=0, descending=False),
    )

    def forward_ops(self, x: Array) -> tuple[Array, Array]:
        positions = jnp.argsort(x, self.axis, stable=True, descending=self.descending)
        return jnp.take_along_axis(x, positions, self.axis), positions.astype(jnp.uint32)


def _outputs(ordered: Node) -> tuple[Node, Node]:
    return get(ordered, 0), get(ordered, 1)


def _topk(op: str, x: Node, k: int, axis: int, descending: bool) -> Node:
    return TopKNodeOp(
        x, k=whole(op, "k", k), axis=axis_in(op, x, axis), descending=flag(op, "descending", descending)
    )


def topk(x: Node, k: int, axis: int, descending: bool = True) -> tuple[Node, Node]:
    """The k largest elements along ``axis``, sorted, and their positions: ``(values, indices)``.

    ``descending=False`` gives the smallest, in ascending order. Indices are uint32. These are the first k of
    ``sort``: equal elements keep their order, and NaN is larger than all numbers. ``ShapeError`` if the axis
    has fewer than k elements.

    Shape: that of ``x`` with size k along ``axis``, both.
    Gradient: ``adj`` of the values, to their places; none for the indices.
    Differs: In Marian the order of equal elements is not defined.
    Source: Marian, ``topk``.
    """
    return _outputs(_topk("topk", x, k, axis, descending))


def topk_values(x: Node, k: int, axis: int, descending: bool = True) -> Node:
    """The k largest elements along ``axis``, sorted: the values of ``topk``.

    Shape: that of ``x`` with size k along ``axis``.
    Gradient: ``adj``, to their places.
    Source: Marian, ``topkValues``.
    """
    return get(_topk("topk_values", x, k, axis, descending), 0)


def topk_indices(x: Node, k: int, axis: int, descending: bool = True) -> Node:
    """The positions, uint32, of the k largest elements along ``axis``: the indices of ``topk``.

    Shape: that of ``x`` with size k along ``axis``.
    Gradient: none.
    Source: Marian, ``topkIndices``.
    """
    return get(_topk("topk_indices", x, k, axis, descending), 1)


def argmax(x: Node, axis: int) -> tuple[Node, Node]:
    """The largest element along ``axis`` and its position: ``topk(x, 1, axis)``, a pair.

    Shape: that of ``x`` with size 1 along ``axis``, both.
    Gradient: ``adj`` of the value, to its place; of equal elements to the first.
    Source: Marian, ``argmax``.
    """
    return _outputs(_topk("argmax", x, 1, axis, True))


def argmin(x: Node, axis: int) -> tuple[Node, Node]:
    """The smallest element along ``axis`` and its position: ``topk(x, 1, axis, False)``, a pair; NaN only if
    all elements are NaN.

    Shape: that of ``x`` with size 1 along ``axis``, both.
    Gradient: ``adj`` of the value, to its place; of equal elements to the first.
    Source: Marian, ``argmin``.
    """
    return _outputs(_topk("argmin", x, 1, axis, False))


def sort(x: Node, axis: int, descending: bool = True) -> tuple[Node, Node]:
    """``x`` sorted along ``axis``, the largest first by default, and the positions: ``(values, indices)``.

    Indices are uint32. Equal elements keep their order; NaN is larger than all numbers.

    Shape: that of ``x``, both.
    Gradient: ``adj`` of the values, to their places; none for the indices.
    Source: Marian, ``sort``.
    """
    return _outputs(
        SortNodeOp(x, axis=axis_in("sort", x, axis), descending=flag("sort", "descending", descending))
    )


def _smallest_first(x: Node) -> Node:
    return sort(x, -1, descending=False)[0]


# The check of TupleViewNodeOp needs an operator with several outputs.
TupleViewNodeOp.cases = (Case((2, 3), domain="distinct", through=_smallest_first),)
