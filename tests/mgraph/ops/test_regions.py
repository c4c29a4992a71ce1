"""Values and errors of the operators on regions, of selection and of logic; broadcasting refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import mgraph
from mgraph import ElementTypeError, ExpressionGraph, Node, ShapeError, Slice
from tests.helpers.leaves import constant, drawn, gradient, param, value

X = drawn(3, 4)


def test_values_are_numpys(graph: ExpressionGraph) -> None:
    x, row = constant(graph, X), constant(graph, X[:1])
    replaced = X.copy()
    replaced[1:, 3:0:-2] = 7
    for node, expected in [
        (mgraph.select(x > 0, x, 0), np.where(X > 0, X, 0)),
        (mgraph.select(graph.indices([1, 0, 2, 0]), row, x), np.where([1, 0, 2, 0], X[:1], X)),
        (mgraph.pad(x, [(1, 0), (0, 2)], 9), np.pad(X, [(1, 0), (0, 2)], constant_values=9)),
        (mgraph.reverse(x), X[::-1]),
        (mgraph.reverse(x, (0, -1)), X[::-1, ::-1]),
        (mgraph.broadcast_to(row, (2, 3, 4)), np.broadcast_to(X[:1], (2, 3, 4))),
        (mgraph.replace_slice(x, (Slice(1, Slice.END), Slice(1, Slice.END, 2)), 7), replaced),
        (mgraph.one_hot(graph.indices([2, 0, 3]), 3), np.eye(4)[[2, 0, 3], :3]),
        (mgraph.one_hot(graph.indices([2, 0]), 3, axis=0), np.eye(3)[[2, 0]].T),
        (mgraph.reshape(x, (2, -1)), X.reshape(2, -1)),
    ]:
        np.testing.assert_array_equal(value(node), expected)


def test_logic_takes_everything_but_zero_for_true(graph: ExpressionGraph) -> None:
    a, b = constant(graph, [0.0, -2.0, 0.0, math.nan]), constant(graph, [0.0, 0.0, 0.5, 1.0])
    for node, expected in [
        (mgraph.logical_and(a, b), [0, 0, 0, 1]),
        (mgraph.logical_or(a, b), [0, 1, 1, 1]),
        (mgraph.logical_xor(a, b), [0, 1, 1, 0]),
        (mgraph.logical_not(a), [1, 0, 1, 0]),
    ]:
        assert value(node).tolist() == expected and node.value_type is a.value_type


def test_what_is_not_selected_has_no_influence(graph: ExpressionGraph) -> None:
    """Like NumPy's where, selection hides NaN from the value; the gradient must not bring it back."""
    x = param(graph, [-1.0, 0.0, 4.0])
    top = mgraph.select(x > 0, mgraph.sqrt(mgraph.select(x > 0, x, 1)), x)
    np.testing.assert_allclose(value(top), [-1, 0, 2])
    np.testing.assert_allclose(gradient(top, x), [1, 1, 0.25])


def test_nothing_to_do_is_the_node_itself(graph: ExpressionGraph) -> None:
    x = constant(graph, X)
    assert mgraph.pad(x, [(0, 0), (0, 0)]) is x
    assert mgraph.reverse(constant(graph, X[:1])).type == "const"
    assert mgraph.broadcast_to(x, X.shape) is x
    assert mgraph.reshape(x, (-1, 4)) is x


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: mgraph.pad(x, [(1, 1)]), "expected 2 pairs"),
        (lambda x: mgraph.pad(x, [(1, -1), (0, 0)]), "at least 0"),
        (lambda x: mgraph.pad(x, [1, 2]), "a pair"),
        (lambda x: mgraph.reverse(x, 2), "axis 2 does not exist"),
        (lambda x: mgraph.reverse(x, (0, -2)), "named twice"),
        (lambda x: mgraph.broadcast_to(x, (4, 4)), "does not broadcast"),
        (lambda x: mgraph.replace_slice(x, (0, 0, 0), 1), "3 slices for 2 axes"),
        (lambda x: mgraph.replace_slice(x, [Slice(2, 9)], 1), "is not a valid slice"),
        (lambda x: mgraph.replace_slice(x, [0], mgraph.reshape(x, (4, 3))), "does not fit a region"),
        (lambda x: mgraph.one_hot(x.graph.indices([1]), 3, axis=2), "cannot join 1 axes"),
        (lambda x: mgraph.one_hot(x.graph.indices([1]), -3), "at least 0"),
        (lambda x: mgraph.reshape(x, (-1, -1)), "no size in place of -1"),
        (lambda x: mgraph.reshape(x, (5, -1)), "no size in place of -1"),
        (lambda x: mgraph.reshape(x, (0, -1)), "no size in place of -1"),
    ],
)
def test_shapes_that_do_not_fit(graph: ExpressionGraph, build: Callable[[Node], Node], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build(constant(graph, X))


def test_types_that_do_not_fit(graph: ExpressionGraph) -> None:
    x = constant(graph, X)
    for build in (lambda: mgraph.select(x, 1, 2), lambda: mgraph.one_hot(x, 3)):
        with pytest.raises(ElementTypeError):
            build()


def test_strict_graphs_broadcast_nothing(graph: ExpressionGraph) -> None:
    graph.set_strict_broadcasting()
    x, row = param(graph, X), param(graph, X[:1], "row")
    for build in (
        lambda: x + row,
        lambda: row < x,
        lambda: mgraph.select(row, x, x),
        lambda: mgraph.tanh(x, row),
    ):
        with pytest.raises(ShapeError, match=r"(?s)does not broadcast; mgraph.broadcast_to.*test_regions"):
            build()
    top = mgraph.maximum(x * mgraph.broadcast_to(row, x.shape) + 1, 0)
    np.testing.assert_allclose(value(top), np.maximum(X * X[:1] + 1, 0), rtol=1e-6)
    graph.clear()
    with pytest.raises(ShapeError):
        x * row
    graph.set_strict_broadcasting(False)
    assert (x * row).shape == (3, 4)


@pytest.mark.parametrize(
    "build",
    [
        lambda x, row, one: mgraph.softmax(x, mgraph.lt(row, 0)),
        lambda x, row, one: mgraph.dropout(x, row),
        lambda x, row, one: mgraph.dropout_relu_inplace(x, row),
        lambda x, row, one: mgraph.layer_norm(x, beta=row),
        lambda x, row, one: mgraph.rms_norm(x, beta=row),
        lambda x, row, one: mgraph.scatter(x, 0, one, 2),
        lambda x, row, one: mgraph.replace_slice(x, 1, 2),
    ],
)
def test_strict_graphs_keep_documented_broadcasting_and_numbers(
    graph: ExpressionGraph, build: Callable[[Node, Node, Node], Node]
) -> None:
    found = []
    for strict in (False, True):
        graph.clear()
        graph.set_strict_broadcasting(strict)
        x, row, one = param(graph, X), param(graph, X[:1], "row"), constant(graph, [[1]], "uint32")
        top = build(x, row, one) * x
        graph.backprop()
        found.append((top.val(), x.grad(), row.grad()))
    for free, strict_ in zip(*found, strict=True):
        np.testing.assert_allclose(strict_, free, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (0, 2), (-1, 0), (2, 0, 1), (1,), ()])
@pytest.mark.sampled(every=3)
def test_reductions_over_several_axes_are_numpys(graph: ExpressionGraph, axes: tuple[int, ...]) -> None:
    data = drawn(2, 3, 4)
    x = param(graph, data)
    for name in ("sum", "mean", "max", "min", "prod"):
        found = value(getattr(mgraph, name)(x, axes))
        np.testing.assert_allclose(found, getattr(np, name)(data, axis=axes, keepdims=True), rtol=1e-5)
    if axes:
        np.testing.assert_allclose(value(mgraph.std(x, axes)), data.std(axes, keepdims=True), rtol=1e-5)
        np.testing.assert_allclose(value(mgraph.var(x, axes)), data.var(axes, keepdims=True), rtol=1e-5)
        sums = np.log(np.exp(data).sum(axes, keepdims=True))
        np.testing.assert_allclose(value(mgraph.logsumexp(x, axes)), sums, rtol=1e-5)


def test_gradients_of_reductions_over_several_axes() -> None:
    for reduction in (mgraph.mean, mgraph.var, mgraph.logsumexp):
        assert mgraph.check_gradients(lambda x, f=reduction: f(x, (0, 2)), (2, 3, 4)).ok
