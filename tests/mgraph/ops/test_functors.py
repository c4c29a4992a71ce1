"""Nodes made from a user's functions, callbacks, and nodes that are not roots."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import (
    ArgumentError,
    ElementTypeError,
    ExpressionGraph,
    GradientError,
    GraphError,
    Node,
    ShapeError,
    inits,
)
from tests.helpers.leaves import param, value


def scaled(a, b):
    return a * b[:, None]


def scaled_back(adj, val, a, b):
    return adj * b[:, None], (adj * a).sum(-1)


# ---------------------------------------------------------------- lambda


def test_a_lambda_computes_and_trains(graph: ExpressionGraph) -> None:
    a, b = param(graph, [[1.0, 2.0], [3.0, 4.0]], "a"), param(graph, [5.0, 6.0], "b")
    y = mgraph.lambda_node([a, b], (2, 2), "float32", scaled, scaled_back)
    assert y.type == "lambda" and y.trainable
    mgraph.sum(mgraph.flatten(y * y))
    graph.backprop()
    np.testing.assert_allclose(y.val(), [[5, 10], [18, 24]])
    np.testing.assert_allclose(b.grad(), [2 * (5 * 1 + 10 * 2), 2 * (18 * 3 + 24 * 4)])
    assert mgraph.check_gradients(y, thorough=True).ok


def test_a_lambda_without_a_backward_function_is_not_trainable(graph: ExpressionGraph) -> None:
    a = param(graph, [[1.0, -2.0]])
    signs = mgraph.lambda_node([a], (1, 2), "int32", lambda a: (a > 0).astype(jnp.int32))
    assert not signs.trainable and value(signs).tolist() == [[1, 0]]
    top = mgraph.sum(mgraph.lambda_node([a], (1, 2), "float32", lambda a: 3 * a) * a, -1)
    graph.backprop()
    np.testing.assert_allclose(a.grad(), [[3, -6]])
    assert top.scalar() == 15


def test_equal_lambdas_are_one_node_and_one_program(graph: ExpressionGraph) -> None:
    def build(graph: ExpressionGraph, hash: int) -> Node:
        a = graph.param("a", (2, 2), inits.ones())
        return mgraph.lambda_node([a], (2, 2), "float32", lambda a: 2 * a, hash=hash)

    first = build(graph, 7)
    assert build(graph, 7) is first
    assert build(graph, 0) is not build(graph, 0)
    assert mgraph.lambda_node([first], (2, 2), "float32", jnp.sin) is mgraph.lambda_node(
        [first], (2, 2), "float32", jnp.sin
    )
    before = mgraph.compile_stats()
    for _ in range(3):
        assert value(build(ExpressionGraph(), 11)).sum() == 8
    assert (mgraph.compile_stats() - before).misses == 1


def test_a_lambda_must_keep_its_word(graph: ExpressionGraph) -> None:
    a = param(graph, [[1.0, 2.0]])
    with pytest.raises(
        ShapeError, match=r"declared to give float32\[2\], it gives float32\[1, 2\](.|\n)*at "
    ):
        mgraph.lambda_node([a], (2,), "float32", jnp.sin)
    with pytest.raises(ElementTypeError, match=r"declared to give int32\[1, 2\], it gives float32\[1, 2\]"):
        mgraph.lambda_node([a], (1, 2), "int32", jnp.sin)
    with pytest.raises(ArgumentError, match="backward must be a function"):
        mgraph.lambda_node([a], (1, 2), "float32", jnp.sin, 3)
    with pytest.raises(ElementTypeError, match="expected a node, got 2"):
        mgraph.lambda_node([2], (1, 2), "float32", jnp.sin)


def test_functions_that_cannot_be_called_are_told_where_the_node_is_made(graph: ExpressionGraph) -> None:
    a = param(graph, [[1.0, 2.0]])
    doubled = type("Doubled", (), {"__call__": lambda self, x: 2 * x, "__hash__": None})()
    for call, problem in (
        (
            lambda: mgraph.lambda_node([a], (1, 2), "float32", jnp.sin, lambda adj, x: (adj,)),
            r"lambda_node calls backward\(adj, val, x\), got backward\(adj, x\)",
        ),
        (
            lambda: mgraph.map(jnp.add, a, a, backward=lambda adj, val, x: (adj, adj)),
            r"map calls backward\(adj, val, x, y\), got backward\(adj, val, x\)",
        ),
        (lambda: mgraph.map(jnp.sin, a, hash="a"), "map: hash must be a whole number, got 'a'"),
        (lambda: mgraph.reduce(3, a), "reduce expects a function, got 3"),
        (lambda: mgraph.map(doubled, a), "map: expected functions that can be hashed, or a hash"),
    ):
        with pytest.raises(ArgumentError, match=f"^{problem}(.|\n)*at .*test_functors"):
            call()


# ---------------------------------------------------------------- callback


def test_a_callback_sees_each_value_once(graph: ExpressionGraph) -> None:
    seen: list[tuple[str, float]] = []
    x = param(graph, [[3.0]])
    y = mgraph.callback(mgraph.square(x), lambda n: seen.append((n.type, n.scalar())))
    z = mgraph.callback(y + 1, lambda n: seen.append((n.type, n.scalar())))
    assert y.type == "callback" and y.trainable
    graph.forward()
    assert seen == [("square", 9), ("scalar_add", 10)]
    graph.backward()
    assert x.grad().tolist() == [[6]] and z.scalar() == 10
    later = mgraph.callback(z * 2, lambda n: seen.append((n.type, n.scalar())))
    graph.forward()
    assert seen[2:] == [("scalar_mult", 20)] and later.scalar() == 20
    graph.backprop()
    assert seen[3:] == seen[:3]


def test_a_callback_is_no_part_of_a_function_or_a_key(graph: ExpressionGraph) -> None:
    calls: list[Node] = []
    x = param(graph, [[3.0]])
    y = mgraph.callback(mgraph.square(x), calls.append)
    assert graph.function(y)().tolist() == [[9]] and not calls
    before = mgraph.compile_stats()
    for _ in range(2):
        other = ExpressionGraph()
        mgraph.callback(mgraph.square(param(other, [[3.0]])), lambda n: calls.append(n))
        other.forward()
    assert len(calls) == 2 and (mgraph.compile_stats() - before).misses <= 1


def test_what_a_callback_raises_reaches_the_user(graph: ExpressionGraph) -> None:
    def refuse(node: Node) -> None:
        raise ValueError(f"{node.type} is too large")

    mgraph.callback(mgraph.square(param(graph, [[3.0]])), refuse)
    with pytest.raises(ValueError, match="square is too large"):
        graph.forward()
    with pytest.raises(ArgumentError, match="expects a function"):
        mgraph.callback(param(graph, [[3.0]]), "print")
    with pytest.raises(GraphError, match="loop's body"):
        mgraph.scan(lambda s, x: (mgraph.callback(s + x, print), x), graph.zeros((2,)), graph.ones((3, 2)))


# ---------------------------------------------------------------- roots


def test_a_removed_root_is_not_differentiated(graph: ExpressionGraph) -> None:
    x = param(graph, [[2.0]])
    extra = mgraph.exp(x)
    top = mgraph.square(x)
    with pytest.raises(GraphError, match="there are 2"):
        graph.backprop()
    assert mgraph.remove_as_root(extra) is extra
    graph.backprop()
    assert x.grad().tolist() == [[4]] and top.scalar() == 4
    np.testing.assert_allclose(extra.val(), jnp.exp(jnp.array([[2.0]])))


def test_no_elements_cannot_be_combined_and_children_come_in_a_list() -> None:
    x = (graph := ExpressionGraph()).ones((0, 2))
    with pytest.raises(ShapeError, match="axis 0 has no elements"):
        mgraph.reduce(jnp.add, x)
    with pytest.raises(ArgumentError, match="sequence of nodes"):
        mgraph.lambda_node(x, x.shape, "float32", jnp.sin)
    assert len(graph.tape.nodes) == 1


def test_a_mapped_function_returns_a_number(graph: ExpressionGraph) -> None:
    with pytest.raises(
        ShapeError, match=r"map.*must return a number, got an array of shape \(2,\)\n  children: "
    ):
        mgraph.map(lambda v: jnp.stack([v, v]), graph.param("x", (3,)))


@pytest.mark.parametrize("name", ["map", "lambda_node"])
def test_a_message_about_a_gradient_names_the_function_that_returned_it(
    graph: ExpressionGraph, name: str
) -> None:
    x = graph.param("x", (2, 3))

    def gradient(adj, val, x):
        return 2 * x * adj  # no tuple

    def square(x):
        return x * x

    if name == "map":
        mgraph.map(square, x, backward=gradient)
    else:
        mgraph.lambda_node([x], (2, 3), "float32", square, gradient)
    line = gradient.__code__.co_firstlineno
    with pytest.raises(GradientError, match=rf"expected a tuple .*\n.*\n  rule at {__file__}:{line}"):
        graph.backprop()
