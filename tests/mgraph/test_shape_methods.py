"""Marian's methods of a node's shape."""

from __future__ import annotations

import pytest

import mgraph
from mgraph import ExpressionGraph, NodeShape, ShapeError, Slice


def test_a_slice_without_a_beginning_begins_at_the_front() -> None:
    assert [Slice(end=2).bounds(3), Slice(None, -1).bounds(3), Slice().bounds(3)] == [(0, 2), (0, 2), (0, 3)]


def test_a_shape_is_a_tuple_with_marians_methods(graph: ExpressionGraph) -> None:
    shape = graph.zeros((2, 3, 4)).shape
    assert shape == (2, 3, 4) and isinstance(shape, NodeShape) and str(shape) == "(2, 3, 4)"
    assert (shape.size(), shape.elements(), shape.back(), shape.dim(-2), shape.axis(-3)) == (3, 24, 4, 3, 0)
    assert [shape.stride(axis) for axis in (0, 1, -1)] == [12, 4, 1]
    assert shape.slice(Slice(-2, Slice.END), 1) == Slice(1, 3)
    assert shape.with_dim(-1, 7) == (2, 3, 7) and shape.from_axes([0, -1]) == (2, 1, 4)
    assert shape.broadcast((3, 1), (5, 1, 1, 1)) == (5, 2, 3, 4)
    assert shape.to_string() == "shape=2x3x4 size=24"
    assert graph.zeros(()).shape.elements() == 1


def test_axes_and_sizes_that_do_not_fit() -> None:
    shape = NodeShape((2, 3))
    for refused in (
        lambda: shape.dim(2),
        lambda: shape.stride(-3),
        lambda: shape.broadcast((4,)),
        lambda: shape.with_dim(0, -1),
    ):
        with pytest.raises(ShapeError):
            refused()
    for wrong in ("a", 1.0, None, [0]):
        for method in (shape.axis, shape.dim, shape.stride, lambda axis: shape.with_dim(axis, 2)):
            with pytest.raises(ShapeError, match=r"an axis must be a whole number, got "):
                method(wrong)  # type: ignore[arg-type]
        with pytest.raises(ShapeError, match=r"expected a part of an axis such as Slice\(1, 3\), got "):
            shape.slice(wrong, 0)  # type: ignore[arg-type]
        with pytest.raises(ShapeError, match="expected axes such as|an axis must be a whole number"):
            shape.from_axes(wrong if wrong != [0] else 0)  # type: ignore[arg-type]


def test_a_field_that_is_a_shape_makes_the_operator_of_the_tuple(graph: ExpressionGraph) -> None:
    x = graph.zeros((6,))
    to = graph.zeros((2, 3)).shape
    assert mgraph.ops.shape.ReshapeNodeOp(x, to=to) is mgraph.reshape(x, (2, 3))
