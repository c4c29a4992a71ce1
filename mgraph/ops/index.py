"""Operators that select elements by their indices, or overwrite them.

Indices are nodes of an integer type, or lists or NumPy vectors of non-negative ints, which become uint32
constants of the graph. A list is checked against the axis. In a node, an index out of range writes nothing
and selects NaN, or from integers the lowest number of a signed type and the largest of an unsigned one. A
negative index, which needs a signed type, counts from the end.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..cases import Case, Convention
from ..errors import ElementTypeError, ShapeError
from ..node import NaryNodeOp, Node, Operand
from ..places import here
from ..platforms import kept_apart
from ..shape import Shape, broadcasts_to
from ..specs import Spec
from .arithmetic import number_as_node
from .operands import Gradients, accumulable, as_positions, axis_in, is_number, refusal
from .shape import reshape

Indices = Node | Sequence[int] | np.ndarray


def _index_node(op: str, x: Node, axis: int, indices: Indices) -> Node:
    """The indices as a node; a list is checked against the axis of ``x``."""
    if isinstance(indices, Node):
        return indices
    try:
        positions = [operator.index(i) for i in indices]
    except TypeError:
        raise ElementTypeError(f"{op}: expected a node or a list of ints, got {indices!r}{here()}") from None
    size = x.shape[axis]
    outside = [i for i in positions if not 0 <= i < size]
    if outside:
        raise refusal(op, f"index {outside[0]} is outside of axis {axis} with size {size}", x)
    return x.graph.indices(positions)


def added_up(x: Array, places: Any, adj: Array) -> Array:
    """Zeros like ``x`` with ``adj`` added at ``places``, which may repeat; sums 16-bit numbers in float32."""
    wide = accumulable(adj)
    return jnp.zeros(x.shape, wide.dtype).at[places].add(wide).astype(x.dtype)


class SelectionNodeOp(NaryNodeOp):
    """Base of the selection by indices of shape (n,) along an axis."""

    index_children = (1,)

    def check_types(self, x: Spec, indices: Spec) -> None:
        super().check_types(x, indices)
        if len(x.shape) != 2 or len(indices.shape) != 1:
            raise ShapeError("expected a matrix and indices with one axis")


class RowsNodeOp(SelectionNodeOp):
    type = "rows"
    cases = (Case((4, 5), (6,), domain=("real", "index:4")),)

    def forward_ops(self, x: Array, indices: Array) -> Array:
        return x.at[as_positions(indices)].get(mode="fill")

    def backward_ops(self, adj: Array, val: Array, x: Array, indices: Array) -> Gradients:
        return added_up(x, as_positions(indices), adj), None


class ColsNodeOp(SelectionNodeOp):
    type = "cols"
    cases = (Case((3, 5), (6,), domain=("real", "index:5")),)

    def forward_ops(self, x: Array, indices: Array) -> Array:
        return x.at[:, as_positions(indices)].get(mode="fill")

    def backward_ops(self, adj: Array, val: Array, x: Array, indices: Array) -> Gradients:
        return added_up(x, (slice(None), as_positions(indices)), adj), None


def index_select(x: Node, axis: int, indices: Indices) -> Node:
    """The parts of ``x`` at ``indices`` along ``axis``; an index may occur more than once.

    ``indices``: a node of shape (n,), or a list. In a node, a negative index counts from the end, and one out
    of range selects NaN (see ``mgraph.ops.index``). ``ShapeError`` for indices with more axes, and for a list
    with an index outside of the axis.

    Shape: that of ``x`` with size n along ``axis``.
    Gradient: ``adj`` added up at the selected places; none for the indices.
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
    """``index_select(x, 0, indices)``: rows of a matrix, embeddings of words.

    Shape: (m, d) and (n,) to (n, d).
    Gradient: ``adj`` added up at the selected rows; none for the indices.
    Source: Marian, ``rows``.
    """
    return index_select(x, 0, indices)


def cols(x: Node, indices: Indices) -> Node:
    """``index_select(x, -1, indices)``: columns of a matrix.

    Shape: (m, d) and (n,) to (m, n).
    Gradient: ``adj`` added up at the selected columns; none for the indices.
    Source: Marian, ``cols``.
    """
    return index_select(x, -1, indices)


def _relocated(x: Node) -> Node:
    """Row 2 goes nowhere, and rows 1 and 3 come from nowhere. Random indices would not agree."""
    graph = x.graph
    origins, destinations = graph.indices([3, 9, 0, 9, 1]), graph.indices([2, 4, 9, 0])
    return relocate(x, origins, destinations)


def _relocated_by_group(x: Node) -> Node:
    graph = x.graph
    origins = reshape(graph.indices([1, 0, 3, 2]), (2, 2))
    destinations = reshape(graph.indices([1, 0, 2, 2, 2, 1]), (2, 3))
    return relocate(x, origins, destinations)


class RelocateNodeOp(NaryNodeOp):
    """Children: x, the origin of each row of the result, the destination of each row of x."""

    type = "relocate"
    index_children = (1, 2)
    cases = (Case((4, 3), through=_relocated), Case((2, 3, 2), through=_relocated_by_group))

    def check_types(self, x: Spec, origins: Spec, destinations: Spec) -> None:
        super().check_types(x, origins, destinations)
        if len(x.shape) < 2 or destinations.shape != x.shape[:-1] or origins.shape[:-1] != x.shape[:-2]:
            raise ShapeError(
                f"expected rows, their destinations {x.shape[:-1]}, and origins with the same axes, got"
                f" {destinations.shape} and {origins.shape}"
            )

    def forward_ops(self, x: Array, origins: Array, destinations: Array) -> Array:
        return _rows_or_zeros(x, origins)

    def backward_ops(
        self, adj: Array, val: Array, x: Array, origins: Array, destinations: Array
    ) -> Gradients:
        return _rows_or_zeros(adj, destinations), None, None


def _rows_or_zeros(x: Array, places: Array) -> Array:
    """The rows of ``x (..., m, d)`` at ``places (..., n)``; zeros for a place outside."""
    lead = x.shape[:-2]
    if math.prod(lead) != 1:
        return jax.vmap(_rows_or_zeros)(x, places)
    x, places = x.reshape(x.shape[-2:]), as_positions(places.reshape(places.shape[-1:]))
    return x.at[places].get(mode="fill", fill_value=0).reshape(*lead, *places.shape, x.shape[-1])


def relocate(x: Node, origins: Node, destinations: Node) -> Node:
    """Rows of ``x`` at other places: ``y[i] = x[origins[i]]``, zeros where the origin is outside ``x``.

    ``destinations`` is the inverse: row ``j`` of ``x`` becomes row ``destinations[j]`` of ``y``, or is lost
    if that is outside ``y``. Both are nodes of non-negative integers and must agree, which is not checked.
    Neither the value nor the gradient adds anything up, unlike those of ``rows``. ``ShapeError`` if the
    shapes do not fit.

    Shape: (..., m, d), (..., n) and (..., m) to (..., n, d); each index along the first axes has its own
    origins and destinations.
    Gradient: ``adj[destinations]``, zeros where the destination is outside; none for the indices.
    Source: no counterpart in Marian, which lays out sentences before they are computed.
    """
    return RelocateNodeOp(x, origins, destinations)


def places_along(indices: Array, axis: int) -> tuple[Array, ...]:
    """For each axis, the positions that ``indices`` selects."""
    open_mesh = list(jnp.indices(indices.shape, sparse=True))
    open_mesh[axis] = as_positions(indices)
    return tuple(open_mesh)


class PlacesNodeOp(NaryNodeOp):
    """Base of operations on elements of ``x`` that are selected along one axis, by indices with as many axes
    as ``x``."""

    index_children = (1,)
    axis: int

    def check_types(self, x: Spec, indices: Spec, *others: Spec) -> None:
        super().check_types(x, indices, *others)
        fits = len(indices.shape) == len(x.shape) and all(
            i == self.axis or m in (1, n) for i, (m, n) in enumerate(zip(indices.shape, x.shape, strict=True))
        )
        if not fits:
            raise ShapeError(f"except along axis {self.axis}, indices must have the child's sizes or 1")
        if not x.shape[self.axis] and indices.shape[self.axis]:
            raise ShapeError(f"axis {self.axis} of {x.shape} has no elements to select")

    def picked(self, x: Shape, indices: Shape) -> Shape:
        """Shape of the places: that of ``x``, with the size of the indices along the axis."""
        return *x[: self.axis], indices[self.axis], *x[self.axis + 1 :]

    def places(self, x: Array, indices: Array) -> tuple[Array, ...]:
        """For each axis of ``x``, the positions of the places."""
        return places_along(jnp.broadcast_to(indices, self.picked(x.shape, indices.shape)), self.axis)


class GatherNodeOp(PlacesNodeOp):
    type = "gather"
    cases = (
        Case((2, 3, 4), (2, 2, 4), domain=("real", "index:3"), axis=1),
        Case((2, 3, 4), (1, 5, 1), domain=("real", "index:3"), axis=1),
        Case((2, 3, 4), (2, 1, 6), domain=("real", "index:4"), axis=2),
        Case((3, 2), (4, 2), domain=("real", "index:3"), axis=0),
    )

    def forward_ops(self, x: Array, indices: Array) -> Array:
        if self._same_everywhere(indices):
            return jnp.take(x, as_positions(indices.reshape(-1)), self.axis, mode="fill")
        return x.at[self.places(x, indices)].get(mode="fill")

    def backward_ops(self, adj: Array, val: Array, x: Array, indices: Array) -> Gradients:
        if self._same_everywhere(indices):
            places = as_positions(indices.reshape(-1))
            return added_up(x, (*[slice(None)] * self.axis, places), adj), None
        return added_up(x, self.places(x, indices), adj), None

    def _same_everywhere(self, indices: Array) -> bool:
        return indices.size == indices.shape[self.axis]


def gather(x: Node, axis: int, indices: Node) -> Node:
    """Elements of ``x`` picked along ``axis``: ``y[i, j] = x[i, indices[i, j]]`` for the last of two axes.

    ``indices`` has as many axes as ``x``. Along the axes other than ``axis`` it has ``x``'s sizes (a batch of
    selections) or 1 (the same selection for all); ``ShapeError`` if not.

    Shape: that of ``x``, with the size of the indices along ``axis``.
    Gradient: ``adj`` added up at the picked places; none for the indices.
    Source: Marian, ``gather``.
    """
    return GatherNodeOp(x, indices, axis=axis_in("gather", x, axis))


class ScatterNodeOp(PlacesNodeOp):
    type = "scatter"
    cases = (
        Case((3, 4), (3, 1), (3, 1), domain=("real", "index:4", "real"), axis=1),
        Case((3, 4), (1, 4), (1, 4), domain=("real", "index:3", "real"), axis=0),
        Case((2, 3, 4), (2, 1, 4), (4,), domain=("real", "index:3", "real"), axis=1),
        Case((2, 3, 4), (1, 1, 1), (2, 3, 1), domain=("real", "index:4", "real"), axis=2),
        Case((2, 3, 5, 2), (2, 1, 1, 1), (3, 1, 2), domain=("real", "index:5", "real"), axis=2),
    )
    conventions = (Convention([[0.0, 0.0]], [[2]], [[1.0]], gradients=([[1, 1]], None, [[0]]), axis=1),)

    def check_types(self, x: Spec, indices: Spec, *others: Spec) -> None:
        super().check_types(x, indices, *others)
        (source,) = others
        picked = self.picked(x.shape, indices.shape)
        if not broadcasts_to(source.shape, picked):
            raise ShapeError(f"a source of {source.shape} does not fit indices that write {picked}")

    def forward_ops(self, x: Array, indices: Array, source: Array) -> Array:
        shape = self.picked(x.shape, indices.shape)
        if indices.size == 1:
            return self._one_place(x, as_positions(indices.reshape(())), jnp.broadcast_to(source, shape))
        whole = [i for i, n in enumerate(indices.shape) if i != self.axis and n == 1]
        chosen = [i for i in range(x.ndim) if i not in whole]
        # Axes along which indices do not differ move in one piece: a cache of keys gets whole rows.
        places = places_along(indices.squeeze(whole), chosen.index(self.axis))
        into: list[Any] = [slice(None)] * x.ndim
        for i, positions in zip(chosen, places, strict=True):
            into[i] = positions
        moved = jnp.broadcast_to(source, shape).transpose(*chosen, *whole)
        # NumPy moves indexed axes with another axis between them to the front; adjacent ones stay in place.
        together = chosen == [*range(chosen[0], chosen[0] + len(chosen))]
        if together:
            moved = jnp.moveaxis(moved, range(len(chosen)), chosen)
        return x.at[tuple(into)].set(moved)

    def _one_place(self, x: Array, index: Array, source: Array) -> Array:
        """``x`` with one part overwritten; unchanged for an index past the end."""
        # XLA copies all of x for a scatter of one index, and for an update that is fused with the read.
        size = x.shape[self.axis]
        place = jnp.where(index < 0, index + size, index)
        before = jax.lax.dynamic_slice_in_dim(x, place, 1, self.axis)
        inside = (place >= 0) & (place < size)
        x, part = kept_apart((x, jnp.where(inside, source, before)))
        return kept_apart(jax.lax.dynamic_update_slice_in_dim(x, part, place, self.axis))

    def backward_ops(self, adj: Array, val: Array, x: Array, indices: Array, source: Array) -> Gradients:
        places = self.places(x, indices)
        return adj.at[places].set(0), None, adj.at[places].get(mode="fill", fill_value=0)


def scatter(x: Node, axis: int, indices: Node, source: Operand) -> Node:
    """``x`` with elements along ``axis`` overwritten: ``y[i, indices[i, j]] = source[i, j]``.

    ``indices`` has as many axes as ``x``, and ``x``'s sizes or 1 along the axes other than ``axis``.
    ``source`` has the shape of the overwritten elements, broadcasts to it, or is a number. ``ShapeError`` if
    not. No index may occur twice in one row: which source would win is not defined, and all would get the
    gradient.

    Shape: that of ``x``.
    Gradient: for ``x``: ``adj``, 0 where overwritten. For ``source``: ``adj`` where it was written.
    Differs: Marian takes the last axis only, and ``indices`` and ``source`` of the same shape.
    Source: Marian, ``scatter``.
    """
    axis = axis_in("scatter", x, axis)
    if is_number(source):
        source = number_as_node("scatter", source, x, part=True)
    return ScatterNodeOp(x, indices, source, axis=axis)


class InsertNodeOp(NaryNodeOp):
    type = "insert"
    index_children = (2,)
    axis: int
    cases = (
        Case((2, 5, 3), (2, 2, 3), (1,), domain=("real", "real", "index:4"), axis=1),
        Case((5,), (2,), (), domain=("real", "real", "index:5"), axis=0),
    )

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
        position = as_positions(position.reshape(()))
        zero = jnp.zeros((), position.dtype)
        return [position if i == self.axis else zero for i in range(buffer.ndim)]


def insert(buffer: Node, value: Node, position: Node, axis: int) -> Node:
    """``buffer`` with ``value`` written over it from ``position`` on along ``axis``.

    ``value`` has ``buffer``'s shape, except that it may be shorter along ``axis``; ``position`` is an integer
    node of shape (1,) or (), so that one program serves every step of a key/value cache. A position too close
    to the end is clamped so that the value fits. ``ShapeError`` if the shapes do not fit.

    Shape: that of ``buffer``.
    Gradient: for ``buffer``: ``adj``, 0 where overwritten. For ``value``: ``adj`` where it was written.
    Source: no counterpart in Marian, which has it as a kernel only.
    """
    return InsertNodeOp(buffer, value, position, axis=axis_in("insert", buffer, axis))
