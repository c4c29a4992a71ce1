"""set_throw_nan: the first node that is not finite is named, by value and by gradient."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, NonFiniteError, UnaryNodeOp, inits


class Poisoned(UnaryNodeOp):
    """The identity, whose rule gives NaN."""

    type = "poisoned"

    def forward_ops(self, x):
        return x

    def backward_ops(self, adj, val, x):
        return (adj * math.nan,)


@pytest.fixture
def graph() -> ExpressionGraph:
    graph = ExpressionGraph()
    graph.set_throw_nan()
    return graph


def test_the_first_bad_value_is_named(graph: ExpressionGraph) -> None:
    x = graph.param("x", (3,), inits.from_vector([1.0, 0.0, -2.0]))
    bad = mgraph.log(x + 1.5)
    # The bad element is hidden from the top.
    mgraph.sum(mgraph.minimum(mgraph.maximum(bad, 0), 1) * 0 + x)
    with pytest.raises(NonFiniteError) as caught:
        graph.forward()
    text = str(caught.value)
    assert text.startswith("the value of log float32[3] (id 2) made at ") and "test_finite.py:" in text
    assert "is not finite\n  child 0: scalar_add float32[3] (id 1)" in text and "from -0.5 to 2.5" in text


def test_infinity_in_a_leaf_and_in_compiled_steps(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.ones())
    mgraph.sum(mgraph.square(x))
    graph.backprop()
    x.set_value([1.0, math.inf])
    with pytest.raises(NonFiniteError, match=r"the value of param 'x' float32\[2\]"):
        graph.backprop()


def test_the_rule_that_spoils_a_gradient_is_named(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.ones())
    inner = mgraph.square(x)
    spoiled = Poisoned(inner)
    mgraph.sum(spoiled * 2 + inner)
    with pytest.raises(NonFiniteError) as caught:
        graph.backprop()
    text = str(caught.value)
    assert text.startswith("the gradient of square float32[2] (id 1) made at ")
    assert "from the rule of poisoned float32[2] (id 2)" in text


def test_the_gradient_of_a_leaf_is_watched(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.from_vector([0.0, 4.0]))
    mgraph.sum(mgraph.sqrt(x))
    with pytest.raises(NonFiniteError, match=r"the gradient of param 'x'(.|\n)*from the rule of sqrt"):
        graph.backprop()


def test_nothing_is_thrown_where_all_is_finite(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.from_vector([1.0, 4.0]))
    best, _ = mgraph.topk(mgraph.sqrt(mgraph.dropout(x, 0.5) + 1), 1, 0)
    top = mgraph.sum(mgraph.checkpoint(best) * 2)
    graph.set_checkpointing(True)
    graph.backprop()
    assert jnp.isfinite(x.grad()).all() and np.isfinite(top.scalar())
    watched = x.grad()
    graph.set_throw_nan(False)
    other = ExpressionGraph()
    y = other.param("x", (2,), inits.from_vector([1.0, 4.0]))
    mgraph.sum(mgraph.topk(mgraph.sqrt(mgraph.dropout(y, 0.5) + 1), 1, 0)[0] * 2)
    other.backprop()
    np.testing.assert_array_equal(watched, y.grad())


def test_later_nodes_are_watched_too(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.from_vector([1.0, -4.0]))
    inner = mgraph.square(x)
    graph.forward()
    mgraph.log(inner - 2)
    with pytest.raises(NonFiniteError, match="the value of log"):
        graph.forward()


def test_a_gradient_is_reported_by_every_backward_and_by_no_forward(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.from_vector([0.0, 4.0]))
    for _ in range(2):
        graph.clear()
        top = mgraph.sum(mgraph.sqrt(x))
        graph.forward()
        assert top.scalar() == 2
        for _ in range(2):
            with pytest.raises(NonFiniteError, match="the gradient of param 'x'"):
                graph.backward()


def test_what_is_removed_as_root_is_watched(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.ones())
    mgraph.remove_as_root(mgraph.log(x - 1))
    mgraph.sum(x)
    with pytest.raises(NonFiniteError, match="the value of log"):
        graph.forward()


def test_what_a_rewrite_absorbed_is_not_watched(graph: ExpressionGraph) -> None:
    x = graph.param("x", (1, 2), inits.from_vector([200.0, 200.0]))

    def record() -> None:
        graph.clear()
        large = mgraph.exp(x)
        mgraph.sum(mgraph.flatten(large / mgraph.sum(large, -1)))

    record()
    with pytest.raises(NonFiniteError, match="the value of exp"):
        graph.backprop()
    record()
    graph.optimize()
    graph.backprop()
    assert x.grad().tolist() == [[0, 0]]
