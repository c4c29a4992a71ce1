"""Operators that select by indices, and those that give indices.

Indices are nodes of an integer type, or lists of non-negative ints, which become uint32 constants of the
graph. A list is checked against the axis; an index in a node that lies outside selects NaN.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..cases import Case
from ..errors import ElementTypeError, ShapeError
from ..node import NaryNodeOp, Node, UnaryNodeOp
from ..places import place, user_frame
from ..specs import Spec, Specs
from .operands import Gradients, axis_in, refusal
from .shape import reshape
from .structure import TupleViewNodeOp, stop_gradient

Indices = Node | Sequence[int]


def _index_node(op: str, x: Node, axis: int, indices: Indices) -> Node:
    """The indices as a node; a list is checked against the axis of ``x``."""
    if isinstance(indices, Node):
        return indices
    try:
        positions = [operator.index(i) for i in indices]
    except TypeError:
        raise ElementTypeError(
            f"{op}: expected a node or a list of ints, got {indices!r}\n  at {place(user_frame())}"
        ) from None
    size = x.shape[axis]
    outside = [i for i in positions if not 0 <= i < size]
    if outside:
        raise refusal(op, f"index {outside[0]} is outside of axis {axis} with size {size}", x)
    return x.graph.indices(positions)


class SelectNodeOp(NaryNodeOp):
    """Base of the selection by indices of shape (n,) along an axis."""

    index_children = (1,)

    def check_types(self, x: Spec, indices: Spec) -> None:
        super().check_types(x, indices)
        if len(x.shape) != 2 or len(indices.shape) != 1:
            raise ShapeError("expected a matrix and indices with one axis")


class RowsNodeOp(SelectNodeOp):
    type = "rows"
    cases = (Case((4, 5), (6,), domain=("real", "index:4")),)

    def forward_ops(self, x: Array, indices: Array) -> Array:
        return x.at[indices].get(mode="fill")

    def backward_ops(self, adj: Array, val: Array, x: Array, indices: Array) -> Gradients:
        return jnp.zeros_like(x).at[indices].add(adj), None


class ColsNodeOp(SelectNodeOp):
    type = "cols"
    cases = (Case((3, 5), (6,), domain=("real", "index:5")),)

    def forward_ops(self, x: Array, indices: Array) -> Array:
        return x.at[:, indices].get(mode="fill")

    def backward_ops(self, adj: Array, val: Array, x: Array, indices: Array) -> Gradients:
        return jnp.zeros_like(x).at[:, indices].add(adj), None


def index_select(x: Node, axis: int, indices: Indices) -> Node:
    """The parts of ``x`` at ``indices`` along ``axis``; an index may occur more than once.

    ``indices``: (n,); the axis gets size n. Gradient: added up at the selected places.
    Source: Marian, ``index_select``.
    """
    axis = axis_in("index_select", x, axis)
    chosen = _index_node("index_select", x, axis, indices)
    if len(chosen.shape) != 1:
        raise refusal("index_select", "expected indices with one axis", x, chosen)
    if len(x.shape) == 2:
        return ColsNodeOp(x, chosen) if axis else RowsNodeOp(x, chosen)
    along = [1] * len(x.shape)
    along[axis] = chosen.shape[0]
    return GatherNodeOp(x, reshape(chosen, tuple(along)), axis=axis)


def rows(x: Node, indices: Indices) -> Node:
    """``index_select(x, 0, indices)``: rows of a matrix, embeddings of words. Source: Marian, ``rows``."""
    return index_select(x, 0, indices)


def cols(x: Node, indices: Indices) -> Node:
    """``index_select(x, -1, indices)``: columns of a matrix. Source: Marian, ``cols``."""
    return index_select(x, -1, indices)


def _places(indices: Array, axis: int) -> tuple[Array, ...]:
    """For each axis the position that every element of ``indices`` speaks of."""
    open_mesh = list(jnp.indices(indices.shape, sparse=True))
    open_mesh[axis] = indices
    return tuple(open_mesh)


class GatherNodeOp(NaryNodeOp):
    type = "gather"
    index_children = (1,)
    axis: int
    cases = (
        Case((2, 3, 4), (2, 2, 4), domain=("real", "index:3"), axis=1),
        Case((2, 3, 4), (1, 5, 1), domain=("real", "index:3"), axis=1),
        Case((2, 3, 4), (2, 1, 6), domain=("real", "index:4"), axis=2),
    )

    def check_types(self, x: Spec, indices: Spec) -> None:
        super().check_types(x, indices)
        fits = len(indices.shape) == len(x.shape) and all(
            i == self.axis or m in (1, n) for i, (m, n) in enumerate(zip(indices.shape, x.shape, strict=True))
        )
        if not fits:
            raise ShapeError(f"except along axis {self.axis}, indices must have the child's sizes or 1")

    def forward_ops(self, x: Array, indices: Array) -> Array:
        if self._same_everywhere(indices):
            return jnp.take(x, indices.reshape(-1), self.axis, mode="fill")
        return x.at[_places(self._full(x, indices), self.axis)].get(mode="fill")

    def backward_ops(self, adj: Array, val: Array, x: Array, indices: Array) -> Gradients:
        zeros = jnp.zeros_like(x)
        if self._same_everywhere(indices):
            place = (*[slice(None)] * self.axis, indices.reshape(-1))
            return zeros.at[place].add(adj), None
        return zeros.at[_places(self._full(x, indices), self.axis)].add(adj), None

    def _same_everywhere(self, indices: Array) -> bool:
        return indices.size == indices.shape[self.axis]

    def _full(self, x: Array, indices: Array) -> Array:
        shape = list(x.shape)
        shape[self.axis] = indices.shape[self.axis]
        return jnp.broadcast_to(indices, shape)


def gather(x: Node, axis: int, indices: Node) -> Node:
    """Elements of ``x`` picked along ``axis``: ``y[i, j] = x[i, indices[i, j]]`` for the last of two axes.

    ``indices`` has as many axes as ``x``, and along the others ``x``'s sizes or 1; ``ShapeError`` if not.
    The result has ``x``'s shape but for ``axis``, which is that of the indices. Gradient: added up at the
    picked places. Source: Marian, ``gather``.
    """
    return GatherNodeOp(x, indices, axis=axis_in("gather", x, axis))


class ScatterNodeOp(NaryNodeOp):
    type = "scatter"
    index_children = (1,)
    axis: int

    cases = (Case((3, 4), (3, 1), (3, 1), domain=("real", "index:4", "real"), axis=1),)

    def check_types(self, x: Spec, indices: Spec, source: Spec) -> None:
        super().check_types(x, indices, source)
        if indices.shape != source.shape:
            raise ShapeError(f"indices {indices.shape} and source {source.shape} must have one shape")
        i = self.axis
        if [*indices.shape[:i], *indices.shape[i + 1 :]] != [*x.shape[:i], *x.shape[i + 1 :]]:
            raise ShapeError(f"except along axis {i}, indices must have the child's sizes")

    def forward_ops(self, x: Array, indices: Array, source: Array) -> Array:
        return x.at[_places(indices, self.axis)].set(source)

    def backward_ops(self, adj: Array, val: Array, x: Array, indices: Array, source: Array) -> Gradients:
        places = _places(indices, self.axis)
        return adj.at[places].set(0), None, adj.at[places].get(mode="fill", fill_value=0)


def scatter(x: Node, axis: int, indices: Node, source: Node) -> Node:
    """``x`` with elements along ``axis`` overwritten: ``y[i, indices[i, j]] = source[i, j]``.

    ``indices`` and ``source`` have one shape: ``x``'s but for ``axis``; ``ShapeError`` if not. No index may
    occur twice in one row: which source then wins is not defined. An index outside of the axis writes
    nothing. Gradient: by ``x`` zero where overwritten, by ``source`` gathered. Marian has the last axis only.
    Source: Marian, ``scatter``.
    """
    return ScatterNodeOp(x, indices, source, axis=axis_in("scatter", x, axis))


class InsertNodeOp(NaryNodeOp):
    type = "insert"
    index_children = (2,)
    axis: int
    cases = (Case((2, 5, 3), (2, 2, 3), (1,), domain=("real", "real", "index:4"), axis=1),)

    def check_types(self, buffer: Spec, value: Spec, position: Spec) -> None:
        super().check_types(buffer, value, position)
        if position.shape not in ((), (1,)):
            raise ShapeError(f"expected one position, of shape (1,) or (), got {position.shape}")
        sizes = [n for i, n in enumerate(buffer.shape) if i != self.axis]
        fits = len(value.shape) == len(buffer.shape) and value.shape[self.axis] <= buffer.shape[self.axis]
        if not fits or sizes != [n for i, n in enumerate(value.shape) if i != self.axis]:
            raise ShapeError(f"a value of {value.shape} does not fit a buffer of {buffer.shape}")

    def forward_ops(self, buffer: Array, value: Array, position: Array) -> Array:
        return jax.lax.dynamic_update_slice(buffer, value, self._start(buffer, position))

    def backward_ops(self, adj: Array, val: Array, buffer: Array, value: Array, position: Array) -> Gradients:
        start = self._start(buffer, position)
        kept = jax.lax.dynamic_update_slice(adj, jnp.zeros_like(value), start)
        return kept, jax.lax.dynamic_slice(adj, start, value.shape), None

    def _start(self, buffer: Array, position: Array) -> list[Any]:
        zero = jnp.zeros((), position.dtype)
        return [position.reshape(()) if i == self.axis else zero for i in range(buffer.ndim)]


def insert(buffer: Node, value: Node, position: Node, axis: int) -> Node:
    """``buffer`` with ``value`` written over it from ``position`` on along ``axis``.

    ``value`` has ``buffer``'s shape but for ``axis``, where it is not longer; ``position`` is an integer node
    of shape (1,) or (), so that one program serves every step of a key/value cache. A value that would
    reach beyond the end is moved back to fit. Gradient: by ``buffer`` zero where overwritten, by ``value``
    cut out. ``ShapeError`` if the shapes do not fit. No operator in Marian, which has it as a kernel.
    """
    return InsertNodeOp(buffer, value, position, axis=axis_in("insert", buffer, axis))


class OrderNodeOp(UnaryNodeOp):
    """Base of the operations with two outputs, values and their uint32 positions along ``axis``.

    Of equal values the first comes first.
    """

    axis: int
    descending: bool = True

    def backward_ops(self, adj: tuple[Array, ...], val: tuple[Array, ...], x: Array) -> Gradients:
        return (jnp.zeros_like(x).at[_places(val[1], self.axis)].add(adj[0]),)


class TopKNodeOp(OrderNodeOp):
    type = "topk"
    k: int
    cases = (
        Case((4, 7), domain="distinct", k=3, axis=1),
        Case((4, 3), domain="distinct", k=2, axis=0, descending=False),
        Case((4, 3), domain="distinct", k=1, axis=1),
    )

    def new_spec(self, x: Spec) -> Specs:
        if not 1 <= self.k <= x.shape[self.axis]:
            raise ShapeError(f"expected 1 <= k <= {x.shape[self.axis]}, the size of the axis, got {self.k}")
        return super().new_spec(x)

    def forward_ops(self, x: Array) -> tuple[Array, Array]:
        if self.k == 1:
            best = jnp.argmax if self.descending else jnp.argmin
            positions = best(x, self.axis, keepdims=True)
            return jnp.take_along_axis(x, positions, self.axis), positions.astype(jnp.uint32)
        last = jnp.moveaxis(x, self.axis, -1)
        values, positions = jax.lax.top_k(last if self.descending else _reversed(last), self.k)
        values = jnp.moveaxis(values, -1, self.axis)
        positions = jnp.moveaxis(positions, -1, self.axis).astype(jnp.uint32)
        return values if self.descending else _reversed(values), positions


def _reversed(x: Array) -> Array:
    """Numbers in the opposite order; its own inverse, also where negating an integer would overflow."""
    return -x if jnp.issubdtype(x.dtype, jnp.floating) else ~x


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
    return TupleViewNodeOp(ordered, index=0), stop_gradient(TupleViewNodeOp(ordered, index=1))


def topk(x: Node, k: int, axis: int, descending: bool = True) -> tuple[Node, Node]:
    """The k largest elements along ``axis``, sorted, and their positions: ``(values, indices)``.

    ``descending=False`` gives the smallest, from the smallest on. Indices are uint32; of equal elements
    the first comes first. Gradient: of the values, to their places. ``ShapeError`` if the axis has fewer
    than k elements. Source: Marian, ``topk``.
    """
    axis = axis_in("topk", x, axis)
    return _outputs(TopKNodeOp(x, k=operator.index(k), axis=axis, descending=bool(descending)))


def argmax(x: Node, axis: int) -> tuple[Node, Node]:
    """The largest element along ``axis`` and its position: ``topk(x, 1, axis)``. Source: Marian."""
    return topk(x, 1, axis)


def argmin(x: Node, axis: int) -> tuple[Node, Node]:
    """The smallest element along ``axis`` and its position: ``topk(x, 1, axis, False)``. Source: Marian."""
    return topk(x, 1, axis, descending=False)


def sort(x: Node, axis: int, descending: bool = True) -> tuple[Node, Node]:
    """``x`` sorted along ``axis``, the largest first by default, and the positions: ``(values, indices)``.

    The order of equal elements is kept. Gradient: of the values, to their places. Source: Marian, ``sort``.
    """
    return _outputs(SortNodeOp(x, axis=axis_in("sort", x, axis), descending=bool(descending)))
