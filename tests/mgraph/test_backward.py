"""Gradients of a graph: which nodes get them, when, and how often."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import (
    ArgumentError,
    ElementTypeError,
    ExpressionGraph,
    GraphError,
    NonFiniteError,
    ShapeError,
    UnaryNodeOp,
    inits,
)
from mgraph.tape import Tape
from tests.helpers.leaves import tutorial


def test_backward_runs_once_per_forward() -> None:
    graph, x, _ = tutorial()
    with pytest.raises(GraphError, match=r"forward\(\)"):
        graph.backward()
    graph.forward()
    graph.backward()
    with pytest.raises(GraphError, match="already run"):
        graph.backward()
    graph.backprop()
    np.testing.assert_allclose(x.grad(), [[2.58385324]], rtol=1e-6)


def test_reset_and_clip_value() -> None:
    graph, x, z = tutorial()
    graph.backprop()
    graph.backprop(reset=False)
    np.testing.assert_allclose(x.grad(), [[2 * 2.58385324]], rtol=1e-6)
    graph.backprop(clip_value=0.5)
    # first the top's adjoint is clipped to 0.5, then x's gradient
    np.testing.assert_allclose(x.grad(), [[0.5]], rtol=1e-6)
    np.testing.assert_allclose(z.grad(), [[0.5]], rtol=1e-6)


def test_two_tops_are_an_error_that_names_them() -> None:
    graph, x, _ = tutorial()
    mgraph.cos(x)
    graph.forward()
    with pytest.raises(
        GraphError, match=r"there are 2; mgraph\.remove_as_root(.|\n)*\+ (.|\n)*cos .*test_backward.py"
    ):
        graph.backward()


@pytest.mark.parametrize("has_rule", [False, True])
def test_a_top_of_integers_is_named(graph: ExpressionGraph, has_rule: bool) -> None:
    rule = {"backward_ops": lambda self, adj, val, x: (adj,)} if has_rule else {}
    whole = {"type": "whole", "forward_ops": lambda self, x: jnp.floor(x).astype(int), **rule}
    y = type("Whole", (UnaryNodeOp,), whole)(graph.param("x", (2,), inits.ones()))
    assert not y.value_type.is_float
    with pytest.raises(GraphError, match=r"no gradient flows through it:\n  whole .* made at .*backward\.py"):
        graph.backprop()


def test_a_top_of_several_elements_gets_adjoint_one(graph: ExpressionGraph) -> None:
    x = graph.param("x", (3,), inits.from_vector([1.0, 2.0, 3.0]))
    mgraph.square(x)
    graph.backprop()
    np.testing.assert_allclose(x.grad(), [2.0, 4.0, 6.0])


def test_where_nothing_is_recorded_there_is_no_top(graph: ExpressionGraph) -> None:
    with pytest.raises(GraphError, match="top node, but nothing is recorded"):
        graph.memory()


def test_inference_has_no_backward() -> None:
    graph, _, _ = tutorial()
    graph.set_inference(True)
    graph.forward()
    with pytest.raises(GraphError, match="inference"):
        graph.backward()


def test_backward_meets_the_masks_of_forward() -> None:
    graph = ExpressionGraph(seed=3)
    x = graph.param("x", (50,), inits.ones())
    mask = graph.dropout_mask(0.5, (50,))
    y = x * mask
    graph.forward()
    value = np.asarray(y.val())
    graph.backward()
    np.testing.assert_array_equal(value, x.grad())
    np.testing.assert_array_equal(value, mask.val())
    assert set(np.unique(value)) == {0.0, 2.0}


def test_integer_parameters_are_not_trained(graph: ExpressionGraph) -> None:
    ids = graph.param("ids", (2,), inits.from_vector([2, 0]), "uint32")
    table = graph.param("table", (3, 2), inits.ones())
    mgraph.sum(mgraph.flatten(mgraph.rows(table, ids)))
    graph.backprop()
    assert not ids.trainable
    np.testing.assert_allclose(table.grad(), [[1, 1], [0, 0], [1, 1]])


def test_fixed_parameters_are_not_trained(graph: ExpressionGraph) -> None:
    a = graph.param("a", (2,), inits.ones(), fixed=True)
    b = graph.param("b", (2,), inits.ones())
    mgraph.sum(a * b)
    graph.backprop()
    assert not a.trainable
    with pytest.raises(GraphError, match="not trainable"):
        a.grad()
    np.testing.assert_allclose(b.grad(), [1.0, 1.0])


def test_a_gradient_has_the_shape_of_its_parameter(graph: ExpressionGraph) -> None:
    a = graph.param("a", (2, 3))
    mgraph.sum(mgraph.flatten(a))
    graph.backprop()
    with pytest.raises(ShapeError, match=r"the gradient of parameter 'a' has shape \(2, 3\), .* \(1, 1\)"):
        a.set_grad(np.ones((1, 1), np.float32))
    with pytest.raises(ElementTypeError, match="the gradient of parameter 'a' holds float32"):
        a.set_grad(np.full((2, 3), "1"))
    a.set_grad(2 * a.grad())
    np.testing.assert_array_equal(a.grad(), np.full((2, 3), 2))
    a.set_grad([[1, 2, 3]] * 2)
    graph.backprop(reset=False)
    np.testing.assert_array_equal(a.grad(), [[2, 3, 4]] * 2)


def test_a_parameter_that_exists_can_be_fixed(graph: ExpressionGraph) -> None:
    def asked(fixed: bool | None) -> bool:
        return graph.param("a", (2,), inits.ones(), fixed=fixed).trainable

    count = graph.param("count", (1,), inits.zeros(), "int32")
    assert [asked(fixed) for fixed in (None, True, None, False, None)] == [True, False, False, True, True]
    graph.clear()
    graph.params()["a"].trainable = False
    assert not asked(None)
    assert graph.param("count", (1,), type="int32", fixed=False) is count and not count.trainable


@pytest.mark.parametrize("assigned", [False, True])
def test_set_trainable_reaches_nodes_already_built(assigned: bool, graph: ExpressionGraph) -> None:
    a = graph.param("a", (2,), inits.ones())
    b = graph.param("b", (2,), inits.from_value(3))
    frozen = mgraph.square(a)
    top = frozen * b
    if assigned:
        frozen.trainable = False
    else:
        frozen.set_trainable(False)
    assert top.trainable and not frozen.trainable
    graph.backprop()
    np.testing.assert_allclose(a.grad(), [0.0, 0.0])
    np.testing.assert_allclose(b.grad(), [1.0, 1.0])


def test_set_trainable_changes_what_is_built_on_the_node_alone(
    graph: ExpressionGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = random.Random(1)
    nodes = [graph.param(name, (2,), inits.ones()) for name in "ab"]
    nodes += [graph.constant((2,), inits.ones()), graph.dropout_mask(0.5, (2,))]
    for _ in range(60):
        a, b = draws.choices(nodes, k=2)
        nodes.append(draws.choice([a + b, a * b, mgraph.tanh(a), mgraph.gt(a, b)]))
    whole = graph.tape.structure
    for _ in range(60):
        with monkeypatch.context() as patch:
            patch.setattr(Tape, "structure", None)  # the structure of the whole tape is not made for it
            draws.choice(nodes).set_trainable(draws.random() < 0.5)
        assert [node.trainable for node in graph.tape.nodes] == whole().trainable()


def test_what_only_a_node_without_gradient_uses_is_no_top(graph: ExpressionGraph) -> None:
    x = graph.param("x", (3,), inits.from_vector([1.0, 4.0, 2.0]))
    largest = mgraph.max(x)
    mgraph.sum(mgraph.exp(x - mgraph.stop_gradient(largest)))
    graph.backprop()
    np.testing.assert_allclose(x.grad(), np.exp([-3.0, 0.0, -2.0]), rtol=1e-6)


def test_what_a_program_has_learnt_of_backward_binds_no_other_graph() -> None:
    def run(removed: bool) -> ExpressionGraph:
        graph = ExpressionGraph()
        x = graph.param("x", (2,), inits.from_value(5))
        nodes = mgraph.exp(x).debug("exp"), mgraph.square(x).debug("square")
        if removed:
            mgraph.remove_as_root(nodes[0])
        graph.forward()
        assert nodes[1].val().tolist() == [25, 25]
        return graph

    run(removed=True).backward()
    for _ in range(2):
        graph = run(removed=False)
        with pytest.raises(GraphError, match="there are 2"):
            graph.backward()


class WithoutRuleNodeOp(UnaryNodeOp):
    type = "without_rule"

    def forward_ops(self, x: jax.Array) -> jax.Array:
        return jnp.sin(x)


def test_a_value_can_be_read_again_after_backward_has_failed(graph: ExpressionGraph) -> None:
    for _ in range(3):
        graph.clear()
        y = WithoutRuleNodeOp(graph.param("x", (2,), inits.zeros()))
        graph.forward()
        assert y.val().tolist() == [0, 0]
        with pytest.raises(mgraph.GradientError, match="declares no backward_ops"):
            graph.backward()


@pytest.mark.parametrize("derivatives", ["rules", "jax", "marian"])
def test_frozen_means_frozen_under_every_rule_set(derivatives: str) -> None:
    graph = ExpressionGraph(derivatives=derivatives)
    a = graph.param("a", (), inits.from_value(2))
    fixed = graph.param("fixed", (), inits.from_value(5), fixed=True)
    square = a * a
    square.set_trainable(False)
    top = square * a + fixed * fixed
    graph.backprop()
    np.testing.assert_allclose(a.grad(), 4.0)
    f = graph.function(top, [])
    gradient = jax.grad(lambda p: f.pure(p))(graph.params().vals())
    assert {name: float(g) for name, g in gradient.items()} == {"a": 4.0, "fixed": 0.0}


def test_an_input_of_a_function_is_trained_even_if_the_graph_froze_it(graph: ExpressionGraph) -> None:
    w = graph.param("w", (), inits.ones())
    top = w * mgraph.sin(graph.param("v", (), inits.ones()))
    w.set_trainable(False)
    f = graph.function(top, [w])
    slope = jax.grad(lambda v: f.pure(graph.params().vals(), [v]))(3.0)
    np.testing.assert_allclose(slope, np.sin(1.0), rtol=1e-6)


@pytest.mark.parametrize(
    "look", [lambda loss: mgraph.stop_gradient(loss) * 2.0, lambda loss: mgraph.gt(loss, loss)]
)
def test_what_is_not_trained_may_look_at_the_top(graph: ExpressionGraph, look) -> None:
    w = graph.param("w", (2,), inits.ones())
    loss = mgraph.sum(w * w)
    seen = look(loss)
    graph.backprop()
    np.testing.assert_allclose(w.grad(), [2.0, 2.0])
    assert seen.val().shape == (1,)


def test_parameters_can_be_frozen_and_debugged_after_clear(graph: ExpressionGraph, capfd) -> None:
    w, v = graph.param("w", (2,), inits.ones()), graph.param("v", (2,), inits.ones())
    graph.clear()
    w.set_trainable(False)
    v.debug("the other")
    mgraph.sum(w * v)
    graph.backprop()
    assert not w.trainable and graph.params().trainable() == {"v": v}
    assert "Debug Grad: the other op=param" in capfd.readouterr().err


def test_freezing_between_a_value_and_backward_counts() -> None:
    for frozen in (False, True):  # the first round teaches that backward follows the value
        graph = ExpressionGraph()
        a, b = graph.param("a", (2,), inits.ones()), graph.param("b", (2,), inits.from_value(3))
        square = mgraph.square(a)
        top = square * b
        graph.forward()
        assert top.val().shape == (2,)
        if frozen:
            square.set_trainable(False)
        graph.backward()
        np.testing.assert_allclose(a.grad(), [0.0, 0.0] if frozen else [6.0, 6.0])


@pytest.mark.parametrize("watch", [False, True])
def test_settings_between_a_value_and_backward_count(watch: bool) -> None:
    for later in (False, True):  # the first round teaches that backward follows the value
        graph = ExpressionGraph()
        x = graph.param("x", (2,), inits.from_value(0 if watch else 4))
        same = mgraph.reshape(x, (2, 1))
        top = mgraph.sqrt(mgraph.max(same))
        graph.forward()
        assert top.scalar() == (0 if watch else 2)
        if later and watch:
            graph.set_throw_nan()
            with pytest.raises(NonFiniteError, match="gradient of max"):
                graph.backward()
        else:
            graph.derivatives = "jax" if later else "rules"
            graph.backward()
            graph.derivatives = "rules"  # too late
            expected = np.inf if watch else 0.125 if later else 0.25
            np.testing.assert_allclose(x.grad(), [expected] * 2)
            np.testing.assert_allclose(same.grad(), [[expected]] * 2)


def test_a_node_trained_after_backward_has_its_gradient(graph: ExpressionGraph) -> None:
    c, w = graph.constant((2,), inits.from_value(3)), graph.param("w", (2,), inits.ones())
    scaled = c * 2.0
    product = scaled * w
    graph.backprop()
    np.testing.assert_allclose(product.grad(), [1.0, 1.0])
    c.set_trainable(True)
    np.testing.assert_allclose(scaled.grad(), [1.0, 1.0])
    np.testing.assert_allclose(c.grad(), [2.0, 2.0])


def test_integers_are_not_trained(graph: ExpressionGraph) -> None:
    with pytest.raises(ElementTypeError, match=r"uint32\[2\] has no gradient"):
        graph.indices([0, 1]).set_trainable(True)
    w = graph.param("w", (4,), inits.range(0, 4))
    values, places = mgraph.topk(w, 2, -1)
    mgraph.sum(values)
    graph.backprop()
    np.testing.assert_allclose(w.grad(), [0, 0, 1, 1])
    with pytest.raises(GraphError, match="has no gradient"):
        places.grad()


def test_a_trained_constant_is_clipped_like_any_node(graph: ExpressionGraph) -> None:
    c = graph.constant((2,), inits.from_value(3))
    c.set_trainable(True)
    mgraph.square(c)
    graph.backprop(clip_value=0.1)
    np.testing.assert_allclose(c.grad(), [0.1, 0.1])
    with pytest.raises(ArgumentError, match="clip_value of at least 0, got -1"):
        graph.backprop(clip_value=-1)


def test_a_node_added_after_backward_has_no_gradient_yet(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2,), inits.ones())
    h = w * 2.0
    graph.backprop()
    y = h * h
    with pytest.raises(GraphError, match=r"call graph.backward\(\) first"):
        y.grad()
    graph.forward()
    graph.backward()
    np.testing.assert_allclose(w.grad(), [8.0, 8.0])
