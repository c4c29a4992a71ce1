"""Python's operators on nodes: broadcasting, numbers, powers, positions, what is no operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaves import param, value

import mgraph
from mgraph import ElementTypeError, ExpressionGraph, Node, ShapeError


@pytest.fixture
def graph() -> ExpressionGraph:
    return ExpressionGraph()


SHAPES = st.lists(st.sampled_from([1, 2, 3]), max_size=3).map(tuple)
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


@settings(max_examples=12)
@given(SHAPES, SHAPES, st.sampled_from(sorted(BINARY)))
def test_broadcasting_is_numpys(left: tuple[int, ...], right: tuple[int, ...], name: str) -> None:
    graph, rng, function = ExpressionGraph(), np.random.default_rng(0), BINARY[name]
    x, y = rng.uniform(1, 2, left), rng.uniform(1, 2, right)
    a, b = param(graph, x, "a"), param(graph, y, "b")
    try:
        expected = function(x, y)
    except ValueError:
        with pytest.raises(ShapeError, match=r"test_expression\.py:\d+"):
            function(a, b)
        return
    node = function(a, b)
    assert node.shape == expected.shape and node.type == name
    graph.backprop()
    np.testing.assert_allclose(node.val(), expected, rtol=1e-6)
    for leaf, at in ((a, x), (b, y)):
        assert leaf.grad().shape == at.shape
    step = 1e-6
    slope = (function(x + step, y).sum() - function(x - step, y).sum()) / (2 * step)
    np.testing.assert_allclose(float(jnp.sum(a.grad())), slope, rtol=1e-4)


def test_neutral_numbers_return_the_node(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    for same in (x + 0, 0 + x, x - 0, x * 1, 1 * x, x / 1, x**1):
        assert same is x
    assert (0 - x).type == "negate"
    assert (x * 0).type == "scalar_mult"
    assert (2 - x).children[0].type == "negate"
    assert (x / 4).type == "scalar_mult" and (x / 4).c == 0.25
    assert (4 / x).type == "/" and (4 / x) is not (4 / x)
    assert (x + 2) is (2 + x) and (x + 2) is (x + np.float32(2))


def test_numpy_scalars_stand_on_either_side(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    total = np.float32(3) * x + np.float64(1) - np.int64(2) * x
    assert isinstance(total, Node) and total.value_type == "float32"
    np.testing.assert_allclose(value(total), [2.0, 3.0])


def test_powers_products_and_positions(graph: ExpressionGraph) -> None:
    x = param(graph, [[-1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    cube, inverse = x**3, x**-1
    product, positions, last = x @ mgraph.transpose(x), x[:, 1], x[-1]
    graph.forward()
    array = np.asarray(x.val())
    np.testing.assert_allclose(cube.val(), array**3, rtol=1e-6)
    np.testing.assert_allclose(inverse.val(), 1 / array, rtol=1e-6)
    np.testing.assert_allclose(product.val(), array @ array.T, rtol=1e-6)
    np.testing.assert_array_equal(positions.val(), array[:, 1])
    np.testing.assert_array_equal(last.val(), array[-1])
    for node, expected in ((x[..., 1:], (2, 2)), (x[0, ::2], (2,)), (x[:], (2, 3)), (x[1:, 0], (1,))):
        assert node.shape == expected
    assert x[:] is x


def test_what_is_no_operand(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    for wrong in ([1.0, 2.0], np.ones(2), "a", None):
        with pytest.raises(TypeError):
            x + wrong
        with pytest.raises(TypeError):
            wrong * x
    with pytest.raises(TypeError):
        iter(x)
    with pytest.raises(ShapeError, match="too many indices"):
        x[0, 0]
    with pytest.raises(ElementTypeError, match="index_select"):
        x[[0, 1]]
    with pytest.raises(ElementTypeError, match="expected a node"):
        mgraph.sum([1, 2])  # type: ignore[arg-type]


def test_integers_stay_integers(graph: ExpressionGraph) -> None:
    i = graph.indices([3, 4])
    before, twice = i - 1, i * 2
    assert before.value_type == "uint32" and not before.trainable
    graph.forward()
    assert np.asarray(before.val()).tolist() == [2, 3] and np.asarray(twice.val()).tolist() == [6, 8]
    for wrong in (lambda: i * 0.5, lambda: i / 2, lambda: mgraph.exp(i), lambda: mgraph.mean(i)):
        with pytest.raises(ElementTypeError, match="cast"):
            wrong()
    with pytest.raises(ElementTypeError, match="unequal element type"):
        i + param(graph, [1.0, 2.0])
    assert (mgraph.cast(i) * 0.5).value_type == "float32"
