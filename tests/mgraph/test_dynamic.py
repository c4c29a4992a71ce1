"""Dynamic graphs: rebuilt for every batch, grown from values just read, in constant memory."""

from __future__ import annotations

import gc

import chex
import jax
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, GraphError, Node, inits


def batch_loss(graph: ExpressionGraph, depth: int, rows: int, seed: int) -> Node:
    """A network and its batch; their depth and size differ from structure to structure."""
    values = np.random.default_rng(seed).standard_normal((rows, 4))
    x: Node = graph.constant((rows, 4), inits.from_tensor(values))
    for i in range(depth):
        x = mgraph.tanh(mgraph.dot(x, graph.param(f"W{i}", (4, 4)))) + x
    return mgraph.sum(mgraph.flatten(x * x))


def test_a_thousand_batches_of_twenty_structures_compile_twenty_programs() -> None:
    graph = ExpressionGraph()
    before = mgraph.compile_stats()
    arrays, objects = [], []
    for batch in range(1000):
        graph.clear()
        top = batch_loss(graph, depth=1 + batch % 5, rows=2 + batch // 5 % 4, seed=batch)
        graph.backprop()
        assert np.isfinite(top.scalar())
        if batch in (199, 999):
            gc.collect()
            arrays.append(len(jax.live_arrays()))
            objects.append(len(gc.get_objects()))
    stats = mgraph.compile_stats() - before
    assert stats.misses == 20 and stats.hits == 980
    assert arrays[1] == arrays[0]
    assert objects[1] - objects[0] < 500


def test_what_is_built_may_depend_on_values_just_seen(graph: ExpressionGraph) -> None:
    """Newton's method with as many steps as it takes, differentiated through the steps taken."""
    a = graph.param("a", (1,), inits.from_value(7.0))
    root, steps = a * 0.5, 0
    while True:
        graph.forward()
        if abs(root.scalar() ** 2 - 7) < 1e-4:
            break
        root, steps = 0.5 * (root + a / root), steps + 1
    graph.backward()
    assert steps == 3
    np.testing.assert_allclose(a.grad(), 0.5 / np.sqrt(7), rtol=1e-3)


def test_gradients_accumulate_over_graphs_of_different_structure() -> None:
    graph, whole = ExpressionGraph(), ExpressionGraph()
    for i, (depth, rows) in enumerate([(1, 2), (2, 3), (1, 4)]):
        graph.clear()
        batch_loss(graph, depth, rows, seed=i)
        graph.forward()
        graph.backward(reset=i == 0)
    tops = [
        batch_loss(whole, depth, rows, seed=i) for i, (depth, rows) in enumerate([(1, 2), (2, 3), (1, 4)])
    ]
    mgraph.plus(tops)
    whole.backprop()
    chex.assert_trees_all_close(graph.params().grads(), whole.params().grads(), rtol=1e-5)


def test_a_second_backward_keeps_what_only_the_first_reached(graph: ExpressionGraph) -> None:
    a, b = graph.param("a", (2,), inits.ones()), graph.param("b", (2,), inits.ones())
    mgraph.sum(a * 3)
    graph.backprop()
    graph.clear()
    mgraph.sum(b * 2)
    graph.forward()
    graph.backward(reset=False)
    assert a.grad().tolist() == [3, 3] and b.grad().tolist() == [2, 2]


def test_dropped_graphs_are_collected_with_their_arrays() -> None:
    def use() -> None:
        graph = ExpressionGraph()
        graph.set_checkpointing(True)
        top = batch_loss(graph, 2, 3, 0)
        seen: list[float] = []
        mgraph.callback(top, lambda n: seen.append(n.scalar()))
        graph.backprop()
        graph.assign(graph.params()["W0"], graph.params()["W0"] * 2)
        graph.forward()
        assert seen

    use()
    gc.collect()
    gc.disable()
    try:
        before = len(jax.live_arrays())
        use()
        assert len(jax.live_arrays()) == before
    finally:
        gc.enable()


def test_inference_computes_once_what_depends_on_parameters_alone() -> None:
    graph = ExpressionGraph(inference=True)
    seen = 0

    def build(values: list[float]) -> Node:
        graph.clear()
        w = graph.param("w", (2, 2), inits.from_vector([1.0, 2.0, 3.0, 4.0]))
        kernel = mgraph.transpose(mgraph.square(w)) * 2
        kernel = mgraph.lambda_node([kernel], (2, 2), "float32", counted, hash=29)
        return mgraph.dot(graph.constant((1, 2), inits.from_vector(values)), kernel)

    def counted(x: jax.Array) -> jax.Array:
        def count(x: np.ndarray) -> np.ndarray:
            nonlocal seen
            seen += 1
            return x

        return jax.pure_callback(count, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    for i in range(3):
        top = build([1.0, float(i)])
        graph.forward()
        np.testing.assert_allclose(top.val(), [[2 + 8 * i, 18 + 32 * i]])
    assert seen == 1 and len(graph.memo) == 1
    graph.params()["w"].set_value([[1.0, 0.0], [0.0, 1.0]])
    top = build([1.0, 1.0])
    graph.forward()
    np.testing.assert_allclose(top.val(), [[2, 2]])
    assert seen == 2
    # A node that is asked for may depend only on parameters, and every value can still be read.
    graph.clear()
    total = mgraph.sum(mgraph.square(graph.params()["w"]) + 1)
    graph.forward()
    assert total.val().tolist() == [[3, 3]]
    assert total.child(0).val().tolist() == [[2, 1], [1, 2]]


def test_a_graph_grows_on_values_just_seen() -> None:
    graph = ExpressionGraph(inference=True)
    x = graph.constant((2,), inits.from_vector([1.0, 2.0]))
    steps = 0
    while True:
        x = x * 2.0 + 1.0
        graph.forward()
        steps += 1
        if float(x.val()[0]) > 50:
            break
    assert steps == 5
    np.testing.assert_allclose(x.val(), [63.0, 95.0])
    graph.clear()  # the next one is expected to grow, too: its program returns all values
    inner = graph.ones((2,)) * 3.0
    top = inner - 1.0
    graph.forward()
    np.testing.assert_array_equal(top.val(), [2, 2])
    before = mgraph.compile_stats()
    np.testing.assert_array_equal(inner.val(), [3, 3])
    assert mgraph.compile_stats() == before


def test_a_value_read_late_is_that_of_its_forward(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2,), inits.ones())
    first = w * 3.0
    graph.forward()
    second = first * graph.constant((2,), inits.from_value(4)) + graph.dropout_mask(0.0, (2,))
    w.set_value(np.array([7.0, 7.0]))
    np.testing.assert_allclose(first.val(), [3.0, 3.0])
    with pytest.raises(GraphError, match="not computed yet"):
        second.val()
    graph.forward()
    np.testing.assert_allclose(second.val(), [13.0, 13.0])


@pytest.mark.parametrize("kind", ["param", "input"])
def test_forward_runs_again_where_a_leaf_has_changed(graph: ExpressionGraph, kind: str) -> None:
    x = graph.param("x", (2,), inits.ones()) if kind == "param" else graph.input("x", (2,))
    w, mask = graph.param("w", (2,), inits.from_value(2)), graph.dropout_mask(0.5, (2,))
    y = x * w
    for value in (1.0, 3.0, 3.0):
        x.set_value(np.full(2, value))
        graph.forward()
        graph.forward()
        np.testing.assert_array_equal(y.val(), [2 * value, 2 * value])
        graph.backward()
        np.testing.assert_array_equal(w.grad(), [value, value])
    drawn = np.array(mask.val())
    graph.forward()
    np.testing.assert_array_equal(mask.val(), drawn)


def test_growing_graphs_of_equal_steps_share_a_program() -> None:
    def decode() -> None:
        graph = ExpressionGraph(inference=True)
        h = graph.zeros((1, 7))
        w = graph.param("w", (7, 7))
        for _ in range(6):
            h = mgraph.tanh(mgraph.dot(h, w) + 0.5)
            graph.forward()
            h.val()

    before = mgraph.compile_stats()
    decode()
    first = mgraph.compile_stats() - before
    assert first.misses <= 3
    middle = mgraph.compile_stats()
    decode()
    assert (mgraph.compile_stats() - middle).misses == 0


def test_backward_over_a_graph_that_grew(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2,), inits.from_vector([0.3, -0.4]))
    h = mgraph.sin(w)
    graph.forward()
    assert h.val().shape == (2,)
    mgraph.sum(h * h)
    graph.forward()
    graph.backward()
    np.testing.assert_allclose(w.grad(), np.sin([0.6, -0.8]), rtol=1e-5)


def test_parameters_changed_between_two_forwards_are_noticed(graph: ExpressionGraph) -> None:
    w = graph.param("w", (1,), inits.ones())
    h = w * 2.0
    graph.forward()
    h.val()
    w.set_value(np.array([5.0]))
    top = h * w
    graph.forward()
    np.testing.assert_allclose(top.val(), [10.0])
    with pytest.raises(GraphError, match=r"param 'w' float32\[1\] changed between two forward"):
        graph.backward()
    graph.backprop()
    np.testing.assert_allclose(w.grad(), [20.0])
