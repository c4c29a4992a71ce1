"""The graph: recording, running, dynamic graphs, gradients, parameters."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import jax
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, GraphError, NaryNodeOp, ParameterError, ShapeError, inits


def tutorial() -> tuple[ExpressionGraph, mgraph.Node, mgraph.Node]:
    graph = ExpressionGraph()
    x = graph.param("x", (1, 1), inits.from_value(2))
    y = graph.constant((1, 1), inits.from_value(3))
    return graph, x, x * y + mgraph.sin(x)


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


def test_identical_expressions_are_one_node_until_forward() -> None:
    graph, x, _ = tutorial()
    assert mgraph.sin(x) is mgraph.sin(x)
    assert x * 2.0 is x * 2.0
    before = mgraph.sin(x)
    assert before.equal(mgraph.sin(x)) and before.hash() == mgraph.sin(x).hash()
    graph.forward()
    assert mgraph.sin(x) is not before


def test_fields_that_differ_only_in_kind_stay_apart() -> None:
    class Field(mgraph.UnaryNodeOp):
        type = "field"
        c: object

        def forward_ops(self, x):
            return x

    graph = ExpressionGraph()
    x = graph.ones((2,))
    values = [1, 1.0, True, 0.0, -0.0, (1,), (1.0,), (True,), "1", None]
    nodes = {id(Field(x, c=v)) for v in values}
    assert len(nodes) == len(values)
    assert Field(x, c=float("nan")) is Field(x, c=float("nan"))
    with pytest.raises(TypeError, match=r"Field.c must be a number.*graph.constant"):
        Field(x, c=np.ones(2))


def test_constants_never_merge() -> None:
    graph = ExpressionGraph()
    assert graph.ones((2,)) is not graph.ones((2,))
    assert graph.dropout_mask(0.5, (2,)) is not graph.dropout_mask(0.5, (2,))


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


def test_a_value_read_late_is_that_of_its_forward() -> None:
    graph = ExpressionGraph()
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


def test_backward_over_a_graph_that_grew() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (2,), inits.from_vector([0.3, -0.4]))
    h = mgraph.sin(w)
    graph.forward()
    assert h.val().shape == (2,)
    mgraph.sum(h * h)
    graph.forward()
    graph.backward()
    np.testing.assert_allclose(w.grad(), np.sin([0.6, -0.8]), rtol=1e-5)


def test_parameters_changed_between_two_forwards_are_noticed() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (1,), inits.ones())
    h = w * 2.0
    graph.forward()
    h.val()
    w.set_value(np.array([5.0]))
    top = h * w
    graph.forward()
    np.testing.assert_allclose(top.val(), [10.0])
    with pytest.raises(GraphError, match="'w' changed between two forward"):
        graph.backward()
    graph.backprop()
    np.testing.assert_allclose(w.grad(), [20.0])


def test_reset_and_clip_value() -> None:
    graph, x, z = tutorial()
    graph.backprop()
    graph.backprop(reset=False)
    np.testing.assert_allclose(x.grad(), [[2 * 2.58385324]], rtol=1e-6)
    graph.backprop(clip_value=0.5)
    # the top's adjoint is cut to 0.5, then x's own gradient is
    np.testing.assert_allclose(x.grad(), [[0.5]], rtol=1e-6)
    np.testing.assert_allclose(z.grad(), [[0.5]], rtol=1e-6)


def test_two_tops_are_an_error_that_names_them() -> None:
    graph, x, _ = tutorial()
    mgraph.cos(x)
    graph.forward()
    with pytest.raises(GraphError, match=r"there are 2:(.|\n)*\+ (.|\n)*cos .*test_graph.py"):
        graph.backward()


def test_a_top_of_several_elements_gets_adjoint_one() -> None:
    graph = ExpressionGraph()
    x = graph.param("x", (3,), inits.from_vector([1.0, 2.0, 3.0]))
    mgraph.square(x)
    graph.backprop()
    np.testing.assert_allclose(x.grad(), [2.0, 4.0, 6.0])


def test_inference_has_no_backward() -> None:
    graph, _, _ = tutorial()
    graph.set_inference(True)
    graph.forward()
    with pytest.raises(GraphError, match="inference"):
        graph.backward()


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


def test_a_rebuilt_graph_compiles_nothing() -> None:
    graph = ExpressionGraph()
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


def test_parameters_are_shared_by_name_and_checked() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (2, 3))
    assert graph.param("w", (2, 3)) is w and graph.get("w") is w and graph.get("v") is None
    with pytest.raises(ShapeError, match=r"\(2, 3\), asked for again with \(3, 2\)\n.*test_graph.py"):
        graph.param("w", (3, 2))
    graph.switch_params("F0")
    other = graph.param("w", (4,), inits.zeros())
    assert other is not w and other.name == "F0::w"
    assert list(graph.params()) == ["w", "F0::w"]


def test_integer_parameters_are_not_trained() -> None:
    graph = ExpressionGraph()
    ids = graph.param("ids", (2,), inits.from_vector([2, 0]), "uint32")
    table = graph.param("table", (3, 2), inits.ones())
    mgraph.sum(mgraph.flatten(mgraph.rows(table, ids)))
    graph.backprop()
    assert not ids.trainable
    np.testing.assert_allclose(table.grad(), [[1, 1], [0, 0], [1, 1]])


def test_fixed_parameters_are_not_trained() -> None:
    graph = ExpressionGraph()
    a = graph.param("a", (2,), inits.ones(), fixed=True)
    b = graph.param("b", (2,), inits.ones())
    mgraph.sum(a * b)
    graph.backprop()
    assert not a.trainable
    with pytest.raises(GraphError, match="not trainable"):
        a.grad()
    np.testing.assert_allclose(b.grad(), [1.0, 1.0])


def test_set_trainable_reaches_nodes_already_built() -> None:
    graph = ExpressionGraph()
    a = graph.param("a", (2,), inits.ones())
    b = graph.param("b", (2,), inits.from_value(3))
    frozen = mgraph.square(a)
    top = frozen * b
    frozen.set_trainable(False)
    assert top.trainable and not frozen.trainable
    graph.backprop()
    np.testing.assert_allclose(a.grad(), [0.0, 0.0])
    np.testing.assert_allclose(b.grad(), [1.0, 1.0])


def test_a_new_name_on_a_reloaded_graph_is_an_error(tmp_path) -> None:
    graph = ExpressionGraph()
    graph.param("w", (2, 3)).val()
    graph.save(tmp_path / "model.npz", meta="type: none\n")
    loaded = ExpressionGraph()
    loaded.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.param("w", (2, 3)).val(), graph.param("w", (2, 3)).val())
    assert loaded.model_yml == "type: none\n"
    with pytest.raises(ParameterError, match=r"'v'.*not in the model that was loaded"):
        loaded.param("v", (2,))


def test_namespaces_are_stripped_on_save_and_added_on_load(tmp_path) -> None:
    graph = ExpressionGraph()
    graph.switch_params("F1")
    graph.param("w", (2,), inits.from_vector([1.0, 2.0]))
    graph.save(tmp_path / "m.npz")
    assert list(mgraph.files.items.read_npz(tmp_path / "m.npz")) == ["w"]
    other = ExpressionGraph()
    other.switch_params("F0")
    other.load(tmp_path / "m.npz")
    assert list(other.params()) == ["F0::w"]


def test_initial_values_depend_on_seed_and_name_not_on_order() -> None:
    one, two = ExpressionGraph(seed=5), ExpressionGraph(seed=5)
    a = one.param("a", (3, 3)).val()
    two.param("b", (3, 3)).val()
    np.testing.assert_array_equal(a, two.param("a", (3, 3)).val())
    assert not np.array_equal(a, ExpressionGraph(seed=6).param("a", (3, 3)).val())


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


def test_errors_name_op_children_and_the_line() -> None:
    graph = ExpressionGraph()
    w = graph.param("weights", (5, 6))
    with pytest.raises(ShapeError, match=r"affine(.|\n)*'weights' float32\[5, 6\](.|\n)*test_graph.py:\d+"):
        mgraph.affine(graph.zeros((4, 3)), w, graph.zeros((1, 6)))
    with pytest.raises(mgraph.ElementTypeError, match="float32 and float64.*cast"):
        graph.zeros((2,)) + graph.zeros((2,), "float64")
    with pytest.raises(mgraph.ElementTypeError, match="expected nodes, got"):
        mgraph.sin(3.0)


def test_wrong_rules_raise() -> None:
    class WrongShape(mgraph.UnaryNodeOp):
        type = "wrong"

        def forward_ops(self, x):
            return x * 2

        def backward_ops(self, adj, val, x):
            return (adj.sum(),)

    class WrongCount(NaryNodeOp):
        type = "wrong"

        def forward_ops(self, x, y):
            return x + y

        def backward_ops(self, adj, val, x, y):
            return (adj,)

    class WrongType(mgraph.UnaryNodeOp):
        type = "wrong"

        def forward_ops(self, x):
            return x * 2

        def backward_ops(self, adj, val, x):
            return (adj.astype("float16"),)

    graph = ExpressionGraph()
    x = graph.param("x", (2, 3))
    for make, message in (
        (lambda: WrongShape(x), r"child 0: expected shape \(2, 3\).*got \(\)"),
        (lambda: WrongCount(x, x), "expected 2 gradients, one per child, got 1"),
        (lambda: WrongType(x), "expected element type float32, got float16"),
    ):
        graph.clear()
        make()
        with pytest.raises(mgraph.GradientError, match=message):
            graph.backprop()


def test_a_rule_sees_no_children() -> None:
    class Peeking(mgraph.UnaryNodeOp):
        type = "peek"

        def forward_ops(self, x):
            return x + self.children[0].shape[0]

    graph = ExpressionGraph()
    with pytest.raises(GraphError, match="a rule sees values only"):
        Peeking(graph.ones((2,)))


def test_float64_needs_no_global_switch() -> None:
    graph = ExpressionGraph()
    graph.set_default_element_type("float64")
    x = graph.param("x", (2,), inits.from_vector([0.1, 0.2]))
    y = mgraph.exp(x)
    graph.backprop()
    assert y.val().dtype == x.grad().dtype == np.float64
    np.testing.assert_allclose(x.grad(), np.exp([0.1, 0.2]), rtol=1e-15)


def test_devices() -> None:
    graph = ExpressionGraph()
    graph.set_device(0, "cpu")
    with pytest.raises(mgraph.DeviceError, match="cpu99.*available: cpu0"):
        graph.set_device(99, "cpu")
    with pytest.raises(GraphError, match="other than 0"):
        graph.reserve_workspace_mb(0)
    graph.reserve_workspace_mb(128)


def test_work_goes_to_the_device_that_was_set() -> None:
    """On a second virtual CPU device, in a process of its own: devices are fixed when JAX starts."""
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
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_graphviz_has_marians_look(tmp_path) -> None:
    graph, _, z = tutorial()
    assert z.mark_checkpoint().set_name("z <top>") is z
    text = graph.graphviz(tmp_path / "g.dot")
    assert (tmp_path / "g.dot").read_text() == text
    assert text.startswith("digraph ExpressionGraph {\nrankdir=LR\n")
    assert '"0" [shape="hexagon", label=<param<br/>"x" (0/1)>, style="filled", penwidth=1, ' in text
    assert '"1" [shape="diamond", label=<const (1/0)>' in text and 'fillcolor="white"' in text
    assert '"3" [shape="box", label=<sin (3/1)>' in text and 'fillcolor="yellow"' in text
    assert '"4" [shape="box", label=<+<br/>"z &lt;top&gt;" (4/1)>' in text
    assert '"4" -> "2";' in text and "penwidth=3" in text
    assert text.index('"4" [') < text.index('"0" [')


def test_debug_prints_value_and_gradient_in_marians_layout(capfd) -> None:
    graph, x, _ = tutorial()
    x.debug("Parameter x")
    graph.backprop()
    text = capfd.readouterr().err
    assert "Debug: Parameter x op=param\nshape=1x1 size=1 type=float32 device=cpu0 ptr=" in text
    assert "min: 2.00000000 max: 2.00000000 l2-norm: 2.00000000\n[[   2.00000000 ]]\n" in text
    assert "Debug Grad: Parameter x op=param\n" in text
    assert "[[   2.58385324 ]]" in text


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


def test_what_only_a_node_without_gradient_uses_is_no_top() -> None:
    graph = ExpressionGraph()
    x = graph.param("x", (3,), inits.from_vector([1.0, 4.0, 2.0]))
    largest = mgraph.max(x)
    mgraph.sum(mgraph.exp(x - mgraph.stop_gradient(largest)))
    graph.backprop()
    np.testing.assert_allclose(x.grad(), np.exp([-3.0, 0.0, -2.0]), rtol=1e-6)


def test_an_absorbed_node_can_be_read_and_names_what_absorbed_it() -> None:
    graph = ExpressionGraph()
    graph.set_throw_nan()
    logits = graph.param("logits", (2, 3), inits.from_vector([0.0, 200.0, 0.0, 1.0, 2.0, 3.0]))
    p = mgraph.softmax(logits)
    labels = graph.indices([0, 2], like=logits, axis=0)
    loss = mgraph.sum(-mgraph.log(mgraph.gather(p, -1, mgraph.reshape(labels, (2, 1)))))
    report = graph.optimize()
    assert "cross_entropy" in str(report)
    # The logarithm of the first probability, 0, is no part of the loss any more.
    graph.backprop()
    assert np.isfinite(loss.val()).all() and np.isfinite(logits.grad()).all()
    np.testing.assert_allclose(p.val()[0], [0, 1, 0], atol=1e-6)
    with pytest.raises(GraphError, match=r"the rewrite '.*' absorbed it; graph.optimize\(keep=\[node\]\)"):
        p.grad()


def test_programs_keep_to_the_precision_and_the_device_that_jax_is_set_to() -> None:
    graph = ExpressionGraph()
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


def test_what_a_program_has_learnt_of_backward_binds_no_other_graph(capfd) -> None:
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


def test_integers_of_an_initialiser_are_kept_or_refused() -> None:
    graph = ExpressionGraph()
    assert graph.constant((2,), inits.from_vector([3.0, 0.0]), "uint8").val().tolist() == [3, 0]
    for values in ([300, -1], [1.5, 0.0], [np.nan, 0.0]):
        with pytest.raises(mgraph.ElementTypeError, match="from_vector: uint8 cannot hold"):
            graph.constant((2,), inits.from_vector(values), "uint8")


def test_settings_that_are_none_are_errors_at_once() -> None:
    graph = ExpressionGraph()
    with pytest.raises(mgraph.DeviceError, match="expected the number of a device, got '0'"):
        graph.set_device("0")
    with pytest.raises(mgraph.ArgumentError, match="copy_params expects an ExpressionGraph, got 3"):
        graph.copy_params(3)
    with pytest.raises(mgraph.ArgumentError, match="bogus"):
        graph.derivatives = "bogus"
    assert graph.derivatives == "rules"
