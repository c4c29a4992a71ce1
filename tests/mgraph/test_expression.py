"""Python's operators on nodes: broadcasting, numbers, powers, indexing, and wrong operands."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgraph
from mgraph import ElementTypeError, ExpressionGraph, GraphError, Node, ShapeError
from tests.helpers.leaves import constant, param, value

BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "/": (operator.truediv, operator.truediv),
    "pow": (mgraph.pow, jnp.power),
    "max": (mgraph.maximum, jnp.maximum),
    "min": (mgraph.minimum, jnp.minimum),
    "logaddexp": (mgraph.logaddexp, jnp.logaddexp),
    "tanh": (mgraph.tanh, lambda a, b: jnp.tanh(a + b)),
    "lt": (operator.lt, lambda a, b: (a < b).astype(a.dtype)),
    "ge": (operator.ge, lambda a, b: (a >= b).astype(a.dtype)),
}


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two broadcastable shapes: one shape twice, with size 1 in some axes, without leading axes in one."""
    full = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=3))
    left, right = (tuple(draw(st.sampled_from([1, n])) for n in full) for _ in range(2))
    right = right[draw(st.integers(0, len(full))) :]
    return draw(st.permutations([left, right]))


@pytest.mark.slow
@settings(max_examples=8, derandomize=True, deadline=None)
@given(broadcastable())
def test_broadcasting_is_jaxs(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Values and shapes, and gradients summed to the children's shapes, equal those of ``jax.vjp``."""
    graph, rng = ExpressionGraph(), np.random.default_rng(0)
    # No two numbers are equal: at ties the gradients of maximum and minimum are Marian's, not JAX's.
    numbers = rng.permutation(np.linspace(0.5, 2, sum(map(math.prod, shapes)))).astype(np.float32)
    arrays = [
        part.reshape(n) for part, n in zip(np.split(numbers, [math.prod(shapes[0])]), shapes, strict=True)
    ]
    a, b = param(graph, arrays[0], "a"), param(graph, arrays[1], "b")
    names = sorted(BINARY)
    function = graph.function([BINARY[name][0](a, b) for name in names], [a, b])

    def both(arrays: list[Any], adjoint: Any) -> tuple[Any, Any]:
        ours = jax.vjp(lambda *v: function.pure({}, v), *arrays)
        theirs = jax.vjp(lambda *v: tuple(BINARY[name][1](*v) for name in names), *arrays)
        pulled = [[pull(unit(i, adjoint)) for i in range(len(names))] for _, pull in (ours, theirs)]
        return (ours[0], pulled[0]), (theirs[0], pulled[1])

    def unit(i: int, adjoint: Any) -> tuple[Any, ...]:
        return tuple(adjoint if k == i else jnp.zeros_like(adjoint) for k in range(len(names)))

    adjoint = rng.normal(size=np.broadcast_shapes(*shapes)).astype(np.float32)
    found, expected = jax.jit(both)(arrays, adjoint)
    for i, name in enumerate(names):
        assert found[0][i].shape == expected[0][i].shape, name
        np.testing.assert_allclose(found[0][i], expected[0][i], rtol=2e-6, err_msg=name)
        for slope, wanted in zip(found[1][i], expected[1][i], strict=True):
            np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-6, err_msg=name)
            assert slope.shape == wanted.shape, name


@pytest.mark.parametrize("name", sorted(BINARY))
@pytest.mark.parametrize("shapes", [((2,), (3,)), ((2, 3), (2,)), ((1, 2, 3), (4, 1, 2))])
def test_what_does_not_broadcast_is_an_error(graph: ExpressionGraph, name: str, shapes: Any) -> None:
    a, b = (param(graph, np.ones(shape), str(shape)) for shape in shapes)
    told = re.escape(f"do not fit: the shapes {shapes[0]} and {shapes[1]} do not broadcast to one")
    with pytest.raises(ShapeError, match=told + r"(.|\n)*test_expression\.py:\d+"):
        BINARY[name][0](a, b)


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


def test_a_number_beside_a_node_without_axes_adds_none(graph: ExpressionGraph) -> None:
    x = param(graph, [4.0, 2.0])[0]
    results = [1 / x, x > 3, mgraph.maximum(x, 5), mgraph.select(x > 3, x, 0), mgraph.replace_slice(x, (), 7)]
    assert [node.shape for node in results] == [()] * 5
    assert [float(value(node)) for node in results] == [0.25, 1, 5, 4, 7]


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
        mgraph.sum([1, 2])


def test_truth_values_stay_truth_values(graph: ExpressionGraph) -> None:
    flags = constant(graph, [False, True], "bool")
    top = mgraph.relu(flags)
    graph.forward()
    assert top.value_type == "bool" and np.asarray(top.val()).tolist() == [False, True]
    with pytest.raises(
        ElementTypeError, match=r"negate.*does not accept dtype bool.*\n  children: const bool"
    ):
        _ = -flags


def test_integers_stay_integers(graph: ExpressionGraph) -> None:
    i = graph.indices([3, 4])
    before, twice = i - 1, i * 2
    assert before.value_type == "uint32" and not before.trainable
    graph.forward()
    assert np.asarray(before.val()).tolist() == [2, 3] and np.asarray(twice.val()).tolist() == [6, 8]
    big = constant(graph, np.uint64([2**64 - 1, 5]), "uint64") - (2**64 - 1)
    graph.forward()
    assert np.asarray(big.val()).tolist() == [0, 6]
    for wrong in (lambda: i * 0.5, lambda: i / 2, lambda: mgraph.exp(i), lambda: mgraph.mean(i)):
        with pytest.raises(ElementTypeError, match="cast"):
            wrong()
    with pytest.raises(ElementTypeError, match="differ in element type"):
        i + param(graph, [1.0, 2.0])
    assert (mgraph.cast(i) * 0.5).value_type == "float32"


def test_comparisons(graph: ExpressionGraph) -> None:
    x, y = param(graph, [1.0, 2.0, 3.0]), param(graph, [3.0, 2.0, 1.0], "y")
    expected = {
        operator.lt: ([1, 0, 0], [1, 0, 0], [0, 0, 1]),
        operator.le: ([1, 1, 0], [1, 1, 0], [0, 1, 1]),
        operator.gt: ([0, 0, 1], [0, 0, 1], [1, 0, 0]),
        operator.ge: ([0, 1, 1], [0, 1, 1], [1, 1, 0]),
    }
    found = {compare: (compare(x, y), compare(x, 2), compare(np.float32(2), x)) for compare in expected}
    graph.forward()
    for compare, nodes in found.items():
        assert tuple(node.val().tolist() for node in nodes) == expected[compare], compare
        assert all(node.value_type == "float32" and not node.trainable for node in nodes)
        for wrong in ([1.0, 2.0, 3.0], np.ones(3), "a", None):
            with pytest.raises(TypeError):
                compare(x, wrong)
            with pytest.raises(TypeError):
                compare(wrong, x)


@pytest.mark.parametrize("convert", [float, int])
def test_a_node_is_no_number(graph: ExpressionGraph, convert: Any) -> None:
    x = param(graph, [1.0])
    with pytest.raises(GraphError, match=r"param float32\[1\] is not a number: .* node.scalar\(\) is one"):
        convert(x)


def test_a_node_is_neither_true_nor_false(graph: ExpressionGraph) -> None:
    x, y = param(graph, [1.0, 2.0]), param(graph, [2.0, 1.0], "y")
    asks = (
        lambda: bool(x), lambda: not x, lambda: x or y, lambda: 0 if x < y else 1, lambda: 0 < x < 2,
        lambda: max(x, y), lambda: sorted([x, y]), lambda: any([x]), lambda: x < y and y < x,
    )  # fmt: skip
    for ask in asks:
        with pytest.raises(GraphError, match=r"neither true nor false(.|\n)*mgraph\.maximum(.|\n)*\.py:\d+"):
            ask()


def test_equality_is_identity(graph: ExpressionGraph) -> None:
    x, y = param(graph, [1.0, 2.0]), param(graph, [1.0, 2.0], "y")
    assert x == x + 0 and x + y == x + y and x != y and x != 1.0
    assert x in [y, x] and {x: 1, y: 2}[y] == 2 and [y, x].index(x) == 1
