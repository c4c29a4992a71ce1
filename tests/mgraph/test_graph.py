"""The graph: recording, running, clearing, random nodes, what is refused."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ElementTypeError, ExpressionGraph, GraphError, ShapeError, inits
from tests.helpers.leaves import tutorial


def test_values_and_gradients_of_the_tutorial() -> None:
    graph, x, z = tutorial()
    graph.forward()
    assert z.scalar() == pytest.approx(6.9093, abs=5e-5)
    graph.backward()
    assert isinstance(x.grad(), jax.Array)
    np.testing.assert_allclose(x.grad(), [[2.58385324]], rtol=1e-6)


def test_every_node_can_be_read_after_a_run() -> None:
    graph, _, z = tutorial()
    product, sine = z.children
    graph.backprop()
    np.testing.assert_allclose(product.val(), [[6.0]])
    np.testing.assert_allclose(sine.val(), np.sin([[2.0]]), rtol=1e-6)
    for node in (product, sine, z):
        np.testing.assert_allclose(node.grad(), [[1.0]])


def test_values_before_forward_and_gradients_before_backward_are_errors() -> None:
    graph, x, z = tutorial()
    with pytest.raises(GraphError, match=r"call graph.forward\(\) first"):
        z.val()
    graph.forward()
    with pytest.raises(GraphError, match=r"call graph.backward\(\) first"):
        z.grad()
    with pytest.raises(GraphError, match=r"call graph.backward\(\) first"):
        x.grad()
    graph.backward()
    with pytest.raises(GraphError, match="not trainable"):
        z.children[0].children[1].grad()


def test_identical_expressions_are_one_node_until_forward() -> None:
    graph, x, _ = tutorial()
    assert mgraph.sin(x) is mgraph.sin(x)
    assert x * 2.0 is x * 2.0
    before = mgraph.sin(x)
    assert before.equal(mgraph.sin(x)) and before.hash() == mgraph.sin(x).hash()
    assert before.hash() != mgraph.cos(x).hash()
    graph.forward()
    assert mgraph.sin(x) is not before


def test_clear_keeps_parameters_and_forgets_nodes() -> None:
    graph, x, z = tutorial()
    graph.backprop()
    graph.clear()
    with pytest.raises(GraphError, match="cleared"):
        z.val()
    np.testing.assert_allclose(x.grad(), [[2.58385324]], rtol=1e-6)
    again = mgraph.square(x)  # a parameter's node joins the new tape by itself
    graph.forward()
    np.testing.assert_allclose(again.val(), [[4.0]])
    assert graph.param("x", (1, 1)) is x


def test_random_nodes_draw_anew_at_each_run_and_follow_the_seed() -> None:
    def masks(seed: int) -> list[np.ndarray]:
        graph = ExpressionGraph(seed=seed)
        drawn = []
        for _ in range(2):
            graph.clear()
            mask = graph.dropout_mask(0.5, (4, 5))
            doubled = mask * 2.0
            graph.forward()
            np.testing.assert_array_equal(doubled.val(), 2 * np.asarray(mask.val()))
            graph.forward()  # nothing new was recorded: nothing is drawn
            drawn.append(np.asarray(mask.val()))
        return drawn

    first, again, other = masks(7), masks(7), masks(8)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])


def test_children_of_two_graphs_are_an_error() -> None:
    one, two = ExpressionGraph(), ExpressionGraph()
    with pytest.raises(GraphError, match="two different graphs(.|\n)*test_graph.py"):
        one.ones((2,)) + two.ones((2,))


def test_a_dropped_graph_is_freed_at_once() -> None:
    graph, _, z = tutorial()
    graph.backprop()
    z.val()
    alive = weakref.ref(graph)
    gc.disable()
    try:
        del graph
        assert alive() is None
    finally:
        gc.enable()
    with pytest.raises(GraphError, match="nothing keeps a reference"):
        z.val()


def test_an_absorbed_node_can_be_read_and_names_what_absorbed_it(graph: ExpressionGraph) -> None:
    graph.set_throw_nan()
    logits = graph.param("logits", (2, 3), inits.from_vector([0.0, 200.0, 0.0, 1.0, 2.0, 3.0]))
    p = mgraph.softmax(logits)
    labels = graph.indices([0, 2], like=logits, axis=0)
    loss = mgraph.sum(-mgraph.log(mgraph.gather(p, -1, mgraph.reshape(labels, (2, 1)))))
    report = graph.optimize()
    assert "cross_entropy" in str(report)
    # The loss no longer contains the logarithm of the first probability, which is 0.
    graph.backprop()
    assert np.isfinite(loss.val()).all() and np.isfinite(logits.grad()).all()
    np.testing.assert_allclose(p.val()[0], [0, 1, 0], atol=1e-6)
    with pytest.raises(GraphError, match=r"the rewrite '.*' absorbed it; graph.optimize\(keep=\[node\]\)"):
        p.grad()


def test_settings_that_are_none_are_errors_at_once(graph: ExpressionGraph) -> None:
    with pytest.raises(mgraph.DeviceError, match="expected the number of a device, got '0'"):
        graph.set_device("0")
    with pytest.raises(mgraph.ArgumentError, match="copy_params expects an ExpressionGraph, got 3"):
        graph.copy_params(3)
    with pytest.raises(mgraph.ArgumentError, match="bogus"):
        graph.derivatives = "bogus"
    assert graph.derivatives == "rules"


def test_arguments_of_the_graph_are_checked(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2,), inits.ones())
    for values in ([-1], [1.5], [[1, 2]]):
        with pytest.raises((ElementTypeError, ShapeError), match="a vector of indices"):
            graph.indices(values)
    assert graph.indices([]).shape == (0,)
    with pytest.raises(ShapeError, match="axis 2 does not exist"):
        graph.indices([1], w, 2)
    for name in ("", 3, ["w"]):
        with pytest.raises(ArgumentError, match="needs a name"):
            graph.param(name, (1,))
        with pytest.raises(ArgumentError, match="needs a name"):
            graph.get(name)
    with pytest.raises(ArgumentError, match="seed"):
        ExpressionGraph(seed=1.5)
    with pytest.raises(ArgumentError, match="2 parts"):
        graph.set_checkpointing(parts=2.5)
    with pytest.raises(ArgumentError, match="expects a node, got 3.0"):
        graph.assign(w, 3.0)
    mgraph.sum(w * 3)
    with pytest.raises(ArgumentError, match="clip_value must be a number, got 'a'"):
        graph.backprop(clip_value="a")
    graph.backprop(clip_value=jnp.float32(0.5))
    np.testing.assert_array_equal(w.grad(), [0.5, 0.5])
