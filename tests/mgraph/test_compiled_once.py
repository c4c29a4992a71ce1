"""What is compiled, how often, and for which device."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, GraphError, inits
from tests.helpers.fresh import python


def test_a_rebuilt_graph_compiles_nothing(graph: ExpressionGraph) -> None:
    for step in range(3):
        graph.clear()
        x = graph.constant((2, 3), inits.from_value(step))
        mgraph.tanh(mgraph.affine(x, graph.param("W", (3, 4)), graph.param("b", (1, 4), inits.zeros())))
        before = mgraph.compile_stats()
        graph.backprop()
        compiled = (mgraph.compile_stats() - before).misses
        assert compiled == (1 if step == 0 else 0)


def test_a_loss_read_before_backward_is_learnt() -> None:
    """Reading the loss first costs a forward program once; then both passes run as one program."""
    for step in range(3):
        graph = ExpressionGraph()
        w = graph.param("w", (3, 3), inits.eye())
        loss = mgraph.sum(mgraph.flatten(mgraph.exp(w * 0.7)))
        graph.forward()
        before = mgraph.compile_stats()
        loss.val()
        graph.backward()
        after = mgraph.compile_stats() - before
        assert (after.misses, after.hits) == ((2, 0) if step == 0 else (0, 1)), step
        np.testing.assert_allclose(w.grad(), 0.7 * np.exp(0.7 * np.eye(3)), rtol=1e-5)


def test_devices(graph: ExpressionGraph) -> None:
    graph.set_device(0, "cpu")
    with pytest.raises(mgraph.DeviceError, match="cpu99.*available: cpu0"):
        graph.set_device(99, "cpu")
    with pytest.raises(GraphError, match="other than 0"):
        graph.reserve_workspace_mb(0)
    graph.reserve_workspace_mb(128)


def test_work_goes_to_the_device_that_was_set() -> None:
    """On a second virtual CPU device, in a separate process, because devices are fixed when JAX starts."""
    code = """
import jax, mgraph
from mgraph import ExpressionGraph, inits
graph = ExpressionGraph()
early = graph.param("early", (2,), inits.ones())
early.val()
graph.set_device(1, "cpu")
top = mgraph.sum(mgraph.exp(early) * graph.param("late", (2,), inits.ones()))
graph.backprop()
places = [top.val().devices(), early.val().devices(), early.grad().devices()]
assert places == [{jax.devices("cpu")[1]}] * 3, places
doubled = graph.function(top * 2)
doubled()
graph.set_device(0, "cpu")
try:
    doubled()
except mgraph.DeviceError as e:
    print(e)
"""
    said = python(code, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert "its arrays are on different devices; call graph.set_device() before" in said


@pytest.mark.slow
def test_two_thousand_nodes_build_and_run_with_one_compile() -> None:
    def chain(graph: ExpressionGraph) -> mgraph.Node:
        graph.clear()
        x = graph.constant((4, 8), inits.from_value(0.1))
        for i in range(500):
            w, b = graph.param(f"W{i % 4}", (8, 8)), graph.param(f"b{i % 4}", (1, 8), inits.zeros())
            x = mgraph.tanh(mgraph.affine(x, w, b)) * 0.5 + x
        return x

    graph = ExpressionGraph()
    before = mgraph.compile_stats()
    for _ in range(2):
        top = chain(graph)
        assert len(graph.tape.nodes) > 2000
        graph.forward()
        assert np.isfinite(top.val()).all()
    assert (mgraph.compile_stats() - before).misses == 1


def test_programs_keep_to_the_precision_and_the_device_that_jax_is_set_to(graph: ExpressionGraph) -> None:
    x = graph.param("x", (3, 3))

    def programs_compiled() -> int:
        graph.clear()
        before = mgraph.compile_stats()
        y = mgraph.dot(x, x)
        graph.forward()
        y.val()
        return (mgraph.compile_stats() - before).misses

    programs_compiled()
    assert programs_compiled() == 0
    with jax.default_matmul_precision("highest"):
        assert programs_compiled() == 1 and programs_compiled() == 0
    with jax.default_device(jax.devices()[0]):
        assert programs_compiled() == 1


def test_the_cache_has_a_capacity_in_whole_programs() -> None:
    with pytest.raises(ArgumentError, match="at least 0, got -1"):
        mgraph.set_program_capacity(-1)
    with pytest.raises(ArgumentError, match="programs must be a whole number, got '3'"):
        mgraph.set_program_capacity("3")
