"""An operator without a rule: an error if a gradient flows, unless its class says that it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, GradientError, Node, UnaryNodeOp, check_gradients, inits, scan


class Cube(UnaryNodeOp):
    type = "cube"

    def forward_ops(self, x):
        return x**3


class Rounded(UnaryNodeOp):
    """Says that it has no gradient."""

    type = "rounded"
    differentiable = False

    def forward_ops(self, x):
        return jnp.round(x)


class StraightThrough(Rounded):
    type = "straight"

    def backward_ops(self, adj, val, x):
        return (adj,)


class Largest(UnaryNodeOp):
    """Integers have no gradient, so nothing is missing."""

    type = "largest"

    def forward_ops(self, x):
        return jnp.argmax(x, -1, keepdims=True)


PROBLEM = r"Cube \(cube\) declares no backward_ops, .*: declare backward_ops\(self, .*differentiable = False"


def graph_with(build: Callable[[Node], Node], value: Any = 2.0) -> tuple[ExpressionGraph, Node, Node]:
    graph = ExpressionGraph()
    array = np.atleast_1d(np.asarray(value, np.float32))
    p = graph.param("p", array.shape, inits.from_tensor(array))
    return graph, p, build(p)


def test_backward_names_the_class_and_the_line() -> None:
    graph, _, top = graph_with(lambda p: Cube(p) + p)
    graph.forward()
    assert top.val().tolist() == [10]
    with pytest.raises(GradientError, match=PROBLEM + r"(.|\n)*test_missing_rules\.py:\d+"):
        graph.backward()
    with pytest.raises(GradientError, match=PROBLEM):
        graph.backprop()
    with pytest.raises(GradientError, match=PROBLEM):
        graph.memory()


def test_pure_under_grad() -> None:
    graph, _, top = graph_with(lambda p: mgraph.sum(Cube(p) + p))
    pure = graph.function(top, []).pure
    with pytest.raises(GradientError, match=PROBLEM):
        jax.grad(lambda p: pure(p)[0])(graph.params().vals())
    # With JAX's own derivatives, nothing is missing.
    pure = graph.function(top, [], derivatives="jax").pure
    assert jax.grad(lambda p: pure(p)[0])(graph.params().vals())["p"].tolist() == [13]


def test_loops_and_recomputed_parts() -> None:
    graph, p, _ = graph_with(lambda p: p)
    last, _ = scan(lambda s, x: (Cube(s) * x, ()), p, graph.ones((3, 1)))
    pure = graph.function(mgraph.sum(last), []).pure
    with pytest.raises(GradientError, match=PROBLEM):
        jax.grad(lambda v: pure(v)[0])(graph.params().vals())
    with pytest.raises(GradientError, match=PROBLEM):
        graph.backprop()
    graph.clear()
    mgraph.sum(mgraph.checkpoint(Cube(p)) * p)
    graph.set_checkpointing()
    with pytest.raises(GradientError, match=PROBLEM):
        graph.backprop()


def test_the_checker_reports_it() -> None:
    report = check_gradients(Cube, (2, 3))
    assert not report.ok and "declares no backward_ops" in str(report)


def test_what_is_not_on_the_way_of_a_gradient_needs_no_rule() -> None:
    graph, p, _ = graph_with(lambda p: p)
    c = graph.ones((1,))
    top = mgraph.sum(p * Cube(c) + p * mgraph.stop_gradient(Cube(p)))
    graph.backprop()
    assert top.val().tolist() == [18] and p.grad().tolist() == [9]
    inference = ExpressionGraph(inference=True)
    cubed = Cube(inference.param("p", (1,), inits.from_value(2)))
    inference.forward()
    assert cubed.val().tolist() == [8]


def test_a_class_may_say_that_it_has_no_gradient() -> None:
    graph, p, top = graph_with(lambda p: mgraph.sum(Rounded(p) * p), 2.4)
    graph.backprop()
    assert top.val()[0] == np.float32(2) * np.float32(2.4) and p.grad().tolist() == [2]
    for derivatives in ("rules", "jax", "marian"):
        pure = graph.function(top, [], derivatives=derivatives).pure
        assert jax.grad(lambda v, pure=pure: pure(v)[0])(graph.params().vals())["p"].tolist() == [2]


def test_a_subclass_with_a_rule_has_a_gradient_again() -> None:
    graph, p, _ = graph_with(lambda p: mgraph.sum(StraightThrough(p)), 2.4)
    graph.backprop()
    assert p.grad().tolist() == [1]
    assert (Rounded.differentiable, StraightThrough.differentiable, Cube.differentiable) == (
        False,
        True,
        True,
    )


def test_integers_need_no_rule() -> None:
    graph, p, _ = graph_with(lambda p: p, [0.1, 0.7, 0.2])
    chosen = Largest(p)
    top = mgraph.sum(mgraph.gather(p * p, 0, chosen))
    assert not chosen.trainable
    graph.backprop()
    assert top.val()[0] == np.float32(0.7) * np.float32(0.7)
    np.testing.assert_allclose(p.grad(), [0, 1.4, 0], rtol=1e-6)
