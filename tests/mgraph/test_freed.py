"""What a graph has cleared is freed, whoever holds a piece of it, and without the garbage collector."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, GraphError, inits, scan


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def freed_by_jax(refs: list[weakref.ref[Any]]) -> None:
    """Wait until JAX has freed what only it holds: numpy arrays that a program has read, which JAX frees when
    it next has work to do."""
    for _ in range(100):
        if all(ref() is None for ref in refs):
            return
        jax.block_until_ready(jnp.add(np.ones(1, np.float32), 1))
        time.sleep(0.02)


def test_a_graph_goes_on_after_an_exception_that_is_still_held() -> None:
    graph = ExpressionGraph()
    p = graph.param("p", (2,), inits.from_value(3))
    tops = [mgraph.sum(p * 2.0), mgraph.sum(p * 4.0)]
    graph.forward()
    try:
        graph.backward()
    except GraphError as error:
        held = error  # as a notebook holds sys.last_value
    graph.clear()
    y = mgraph.sum(p * 5.0)
    graph.forward()
    graph.backward()
    assert y.val().tolist() == [30] and p.grad().tolist() == [5, 5]
    for use in (tops[0].val, lambda: tops[0] + y, lambda: tops[0] * 2, tops[0].grad):
        with pytest.raises(GraphError, match="its graph was cleared"):
            use()
    assert held.__traceback__ is not None


def test_an_exception_keeps_no_batch_and_no_gradient_over_clear() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (3, 3))
    batch = np.ones((64, 3), np.float32)
    x = graph.constant(batch.shape, inits.from_tensor(batch))
    first = mgraph.sum(mgraph.flatten(mgraph.dot(x, w)))
    graph.backprop()
    run, kept = graph._run, [weakref.ref(x.array), weakref.ref(first.val())]
    try:
        graph.backward()
    except GraphError as error:
        held = error
    graph.clear()
    mgraph.sum(w, 0)
    graph.forward()
    del x, first
    freed_by_jax(kept)
    assert [ref() is None for ref in kept] == [True, True]
    assert held.__traceback__ is not None and not run._values


def test_old_runs_gradients_and_batches_are_freed_at_once() -> None:
    graph, runs, arrays = ExpressionGraph(), [], []
    w = graph.param("w", (2, 2))
    for step in range(20):
        graph.clear()
        x = graph.constant((4, 2), inits.from_value(step))
        inner = mgraph.tanh(mgraph.dot(x, w))
        mgraph.sum(mgraph.flatten(inner))
        graph.backprop()
        inner.val(), inner.grad()  # computed by the interpreters, forward and backward
        runs.append(weakref.ref(graph._run))
        arrays += [weakref.ref(x.array), weakref.ref(inner.val()), weakref.ref(w.grad())]
    del x, inner
    graph.clear()
    w.set_grad(None)
    assert not any(ref() for ref in runs)
    freed_by_jax(arrays)
    assert not any(ref() is not None for ref in arrays)


def test_runs_without_clear_are_freed_too() -> None:
    graph, runs = ExpressionGraph(), []
    top = mgraph.sum(graph.param("w", (2,), inits.ones()) * 2.0)
    for _ in range(5):
        graph.backprop()
        top.val()
        runs.append(weakref.ref(graph._run))
    assert [run() is None for run in runs] == [True] * 4 + [False]


def test_a_body_that_raised_is_closed() -> None:
    graph, seen = ExpressionGraph(), []
    xs, first = graph.ones((3, 2)), graph.ones((2,))

    def step(state, x):
        seen.append(state + x)
        raise ValueError("in the body")

    with pytest.raises(ValueError, match="in the body") as held:
        scan(step, first, xs)
    with pytest.raises(GraphError, match="the loop whose body it belongs to is complete"):
        mgraph.exp(seen[0])
    last, _ = scan(lambda s, x: (s + x, ()), first, xs)
    graph.forward()
    assert last.val().tolist() == [4, 4] and held.value.args == ("in the body",)


def test_the_body_of_a_loop_cannot_clear_its_graph() -> None:
    graph = ExpressionGraph()
    xs, first = graph.ones((3, 2)), graph.ones((2,))
    with pytest.raises(GraphError, match="while the body of a loop is recorded"):
        scan(lambda s, x: (graph.clear(), s)[::-1], first, xs)
