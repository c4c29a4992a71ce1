"""Checkpointing: less memory, the same gradients; memory known before anything runs."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, GraphError, Node, inits
from mgraph.running.memory import MemoryUse
from mgraph.tracing.checkpointing import cuts, placed

pytestmark = pytest.mark.optimized

LAYERS, ROWS, WIDTH = 12, 256, 64


def stack(graph: ExpressionGraph, mark: bool = True) -> Node:
    """Twelve layers of a feed-forward network with dropout and layer normalization; the sum of squares."""
    x = graph.constant((ROWS, WIDTH), inits.from_tensor(np.sin(np.arange(ROWS * WIDTH)).reshape(ROWS, WIDTH)))
    for i in range(LAYERS):
        w1 = graph.param(f"l{i}_W1", (WIDTH, 4 * WIDTH))
        w2 = graph.param(f"l{i}_W2", (4 * WIDTH, WIDTH))
        gamma = graph.param(f"l{i}_gamma", (1, WIDTH), inits.uniform(0.5, 1.5))
        inner = mgraph.dropout(mgraph.relu(mgraph.dot(x, w1)), 0.1)
        x = mgraph.layer_norm(x + mgraph.dot(inner, w2), gamma)
        x = mgraph.checkpoint(x) if mark else x
    return mgraph.sum(mgraph.flatten(x * x))


def gradients(graph: ExpressionGraph) -> dict[str, np.ndarray]:
    graph.backprop()
    return {name: np.asarray(value) for name, value in graph.params().grads().items()}


@pytest.mark.slow
@pytest.mark.parametrize("parts", [None, 4])
def test_equal_gradients_with_half_of_the_memory_at_most(parts: int | None) -> None:
    plain, saving = ExpressionGraph(seed=5), ExpressionGraph(seed=5)
    saving.set_checkpointing(True, parts=parts)
    tops = stack(plain), stack(saving, mark=parts is None)
    expected, found = gradients(plain), gradients(saving)
    assert tops[0].scalar() == tops[1].scalar()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6 * np.abs(value).max())
    assert saving.memory().temporaries < 0.5 * plain.memory().temporaries
    saving.set_checkpointing(False)
    assert saving.memory().temporaries == plain.memory().temporaries


def test_values_between_can_be_read_and_debugged(graph: ExpressionGraph) -> None:
    graph.set_checkpointing(True)
    x = graph.param("x", (3,), inits.from_vector([0.1, 0.2, 0.3]))
    inner = mgraph.exp(x)
    outer = mgraph.checkpoint(mgraph.sin(inner))
    best, places = mgraph.topk(mgraph.square(outer) + inner, 2, 0)
    top = mgraph.sum(mgraph.square(mgraph.checkpoint(best)))
    graph.backprop()
    np.testing.assert_allclose(inner.val(), np.exp([0.1, 0.2, 0.3]), rtol=1e-6)
    assert np.asarray(places.val()).tolist() == [2, 1] and inner.grad().shape == (3,)
    assert mgraph.check_gradients(top).ok
    slope = jax.grad(
        lambda v: (lambda y: jnp.sum(jnp.sort(y)[1:] ** 2))(jnp.sin(jnp.exp(v)) ** 2 + jnp.exp(v))
    )
    np.testing.assert_allclose(x.grad(), slope(jnp.array([0.1, 0.2, 0.3])), rtol=1e-5)


@pytest.mark.thorough
def test_pure_functions_are_checkpointed_too() -> None:
    def temporaries(checkpointing: bool) -> tuple[int, dict[str, jax.Array]]:
        graph = ExpressionGraph(seed=5)
        graph.set_checkpointing(checkpointing)
        pure = graph.function(stack(graph)).pure

        def loss(params: dict[str, jax.Array]) -> jax.Array:
            return pure(params, key=jax.random.key(1))[0]

        compiled = jax.jit(jax.grad(loss)).lower(graph.params().vals()).compile()
        return compiled.memory_analysis().temp_size_in_bytes, compiled(graph.params().vals())

    (plain, expected), (saving, found) = temporaries(False), temporaries(True)
    assert saving < 0.5 * plain
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6 * float(jnp.abs(value).max()))


def test_a_frozen_span_and_an_adjoint_of_zeros(graph: ExpressionGraph) -> None:
    graph.set_checkpointing(True)
    x = graph.param("x", (2,), inits.from_vector([1.0, 2.0]))
    frozen = mgraph.checkpoint(mgraph.exp(graph.param("f", (2,), inits.ones(), fixed=True)))
    unused = mgraph.checkpoint(mgraph.sin(x) * 0)
    mgraph.sum(mgraph.checkpoint(mgraph.square(x) * frozen) + unused)
    graph.backprop()
    np.testing.assert_allclose(x.grad(), 2 * np.e * np.array([1, 2]), rtol=1e-6)


def test_parts_are_cut_where_little_is_alive(graph: ExpressionGraph) -> None:
    stack(graph, mark=False)
    tape = graph.tape
    for parts in (2, 4):
        found = placed(tape.rows, [n.spec for n in tape.nodes], parts)
        assert [tape.nodes[i].type for i in found] == ["layer_normalization"] * (parts - 1)
        assert cuts(tape, parts) == {*found}
    assert cuts(tape, 1) == set(), "no node is marked"
    with pytest.raises(ArgumentError, match="at least 2 parts"):
        graph.set_checkpointing(True, parts=1)


@pytest.mark.thorough
def test_memory_is_known_before_anything_runs(graph: ExpressionGraph) -> None:
    stack(graph)
    with pytest.raises(GraphError, match="reserve_workspace_mb"):
        graph.fits()
    graph.reserve_workspace_mb(1)
    assert not graph.fits()
    text = str(graph.memory())
    assert text.startswith("needs ") and text.endswith(", 1 MiB are reserved")
    graph.reserve_workspace_mb(1000)
    assert graph.fits() and graph.memory().needed < 1000 << 20
    graph.reserve_workspace_mb(-1)
    assert graph.fits() and (graph.memory().reserved or 0) > 1 << 28
    graph.backprop()


def test_what_needs_just_what_is_reserved_fits() -> None:
    use = MemoryUse(1 << 20, 2 << 20, 3 << 20, 6 << 20)
    said = "needs 6.0 MiB (arguments 1.0, results 2.0, temporaries 3.0)"
    assert use.fits and str(use) == f"{said}, 6 MiB are reserved"
    assert not replace(use, reserved=use.needed - 1).fits
    assert replace(use, reserved=None).fits and str(replace(use, reserved=None)) == said


def test_an_analysis_is_no_forward(graph: ExpressionGraph) -> None:
    x, w = graph.input("x", (2,)), graph.param("w", (2,), inits.ones())
    x.set_value([1, 1])
    inner = x * w
    top = mgraph.sum(inner)
    graph.memory(), graph.fusion_report(), graph.fusion_report(backward=True)
    with pytest.raises(GraphError, match="not computed yet"):
        top.val()
    assert x * w is inner
    x.set_value([2, 3])
    graph.forward()
    assert top.scalar() == 5 and not graph.dynamic
