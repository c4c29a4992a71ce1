"""Nothing keeps a JAX tracer: every way of running a graph, under JAX's own check for leaks."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, Node, inits


@pytest.fixture(autouse=True)
def checking() -> Iterator[None]:
    mgraph.clear_programs()
    with jax.checking_leaks():
        yield
    mgraph.clear_programs()


def build(graph: ExpressionGraph) -> Node:
    """A loop, dropout, two outputs, a checkpoint, a user's function: all that a program may hold."""
    w = graph.param("w", (4, 4), inits.normal())
    xs = graph.constant((3, 2, 4), inits.normal())

    def step(state: Node, x: Node) -> tuple[Node, Node]:
        state = mgraph.tanh(mgraph.dot(state, w) + x)
        return state, mgraph.dropout(state, 0.2)

    last, states = mgraph.scan(step, graph.zeros((2, 4)), xs)
    best, _ = mgraph.topk(mgraph.checkpoint(last), 2, -1)
    mapped = mgraph.map(lambda a: a * jnp.tanh(a), best, backward=lambda adj, val, a: (adj * a,))
    return mgraph.sum(mgraph.flatten(mapped)) + mgraph.sum(mgraph.flatten(mgraph.layer_norm(states)))


@pytest.mark.parametrize("throw_nan", [True, False])
@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.sampled("True-True")
def test_runs(checkpointing: bool, throw_nan: bool) -> None:
    graph = ExpressionGraph()
    graph.set_checkpointing(checkpointing)
    graph.set_throw_nan(throw_nan)
    top = build(graph)
    graph.forward()
    between = top.child(0).val()
    graph.backward(clip_value=1.0)
    assert np.isfinite(between).all() and top.child(1).grad().shape == (1,)
    assert graph.fusion_report().kernels
    graph.assign(graph.params()["w"], graph.params()["w"] * 2)


@pytest.mark.parametrize("derivatives", ["rules", "jax"])
def test_pure_functions(derivatives: str) -> None:
    graph = ExpressionGraph()
    function = graph.function(build(graph), derivatives=derivatives)
    params = graph.params().vals()

    def loss(params: dict[str, jax.Array], key: jax.Array) -> jax.Array:
        return function.pure(params, key=key)[0]

    keys = jax.random.split(jax.random.key(1), 2)
    one = jax.jit(jax.grad(loss))(params, keys[0])
    both = jax.vmap(jax.grad(loss), (None, 0))(params, keys)
    np.testing.assert_allclose(both["w"][0], one["w"], rtol=1e-5, atol=1e-6)


def test_a_wrong_rule_leaves_nothing_behind() -> None:
    class Wrong(mgraph.UnaryNodeOp):
        type = "wrong"

        def forward_ops(self, x):
            return 2 * x

        def backward_ops(self, adj, val, x):
            return (adj[0],)

    graph = ExpressionGraph()
    mgraph.sum(Wrong(graph.param("x", (3,), inits.ones())))
    with pytest.raises(mgraph.GradientError):
        graph.backprop()
    assert not mgraph.check_gradients(Wrong, (3,)).ok
