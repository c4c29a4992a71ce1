"""Rewriting: nodes stay valid, rules of one's own, loops, refusals, termination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, GraphError, NaryNodeOp, Node
from mgraph.ops.arithmetic import ScalarMultNodeOp
from mgraph.ops.elementwise import ExpNodeOp, LogNodeOp
from mgraph.ops.structure import StopGradientNodeOp
from mgraph.rewriting import DEFAULT, Rule, again, optimize, rule
from mgraph.rewriting.patterns import Field, Label, Match, Op, Skip
from tests.helpers.rewritten import b, check, constant, labels, logits, numbers, param, w, x2

# ------------------------------------------------------------ nodes stay what they are


def network(graph: ExpressionGraph) -> dict[str, Node]:
    x = logits(graph)
    p = mgraph.softmax(x)
    picked = mgraph.gather(p, -1, labels(graph))
    each = -mgraph.log(picked)
    loss = mgraph.sum(mgraph.flatten(each * 2.0 * 3.0)).set_name("cost")
    return {"x": x, "p": p, "picked": picked, "each": each, "loss": loss}


def test_a_node_keeps_its_identity_name_and_place() -> None:
    graph, plain = ExpressionGraph(), ExpressionGraph()
    nodes, expected = network(graph), network(plain)
    place = nodes["each"].where
    report = optimize(graph)
    graph.backprop()
    plain.backprop()
    assert nodes["each"].type == "x-ent" and nodes["each"].where == place
    assert nodes["loss"].name == "cost" and graph.tape.nodes[nodes["loss"].id] is nodes["loss"]
    for name, node in nodes.items():
        np.testing.assert_allclose(node.val(), expected[name].val(), rtol=2e-6, err_msg=name)
    for name in ("x", "each"):
        np.testing.assert_allclose(nodes[name].grad(), expected[name].grad(), rtol=1e-4, atol=1e-6)
    assert __file__ in report.changes[0].place


def test_the_tape_stays_in_order(graph: ExpressionGraph) -> None:
    network(graph)
    optimize(graph)
    tape = graph.tape
    assert [n.id for n in tape.nodes] == list(range(len(tape.nodes)))
    for node, row in zip(tape.nodes, tape.rows, strict=True):
        assert all(child.id < node.id for child in node.children)
        if node.children:
            assert row == (node.operator, *(c.id for c in node.children))
    assert tape.inputs == [n.id for n in tape.nodes if n.type in ("param", "const")]
    assert all(tape.rows[node.id] == row for row, node in tape.seen.items())


def test_an_absorbed_node_with_another_use_stays_computed() -> None:
    def build(graph: ExpressionGraph) -> Node:
        p = mgraph.softmax(logits(graph))
        return -mgraph.log(mgraph.gather(p, -1, labels(graph))) + mgraph.sum(p * p, -1)

    check(build, "*", "+", "softmax", "sum", "x-ent")


def test_new_nodes_may_use_an_absorbed_one() -> None:
    def losses(graph: ExpressionGraph, rewrite: bool) -> np.ndarray:
        nodes = network(graph)
        if rewrite:
            assert optimize(graph)
        total = nodes["loss"] + mgraph.sum(mgraph.flatten(nodes["p"] * nodes["p"]))
        graph.backprop()
        return np.asarray([total.scalar(), *np.asarray(nodes["x"].grad()).reshape(-1)])

    np.testing.assert_allclose(losses(ExpressionGraph(), True), losses(ExpressionGraph(), False), rtol=1e-4)


@pytest.mark.parametrize("mark", ["debug", "checkpoint", "callback", "freeze", "keep"])
def test_marked_nodes_are_not_absorbed(mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    graph = ExpressionGraph()
    nodes = network(graph)
    p = nodes["p"]
    seen: list[Node] = []
    if mark == "debug":
        p.debug("probabilities")
    elif mark == "checkpoint":
        p.mark_checkpoint()
    elif mark == "callback":
        mgraph.remove_as_root(mgraph.callback(p, seen.append))
    elif mark == "freeze":
        p.set_trainable(False)
    report = optimize(graph, keep=[p] if mark == "keep" else ())
    assert "cross_entropy_of_logsoftmax" not in report.counts
    assert p.type == "softmax" and nodes["picked"].child(0) is p and p.is_checkpoint == (mark == "checkpoint")
    if mark == "freeze":
        assert not p.trainable and not nodes["loss"].trainable
    else:
        graph.backprop()
        assert np.abs(p.grad()).max() > 0
    assert seen == ([p] if mark == "callback" else [])
    assert ("probabilities" in capsys.readouterr().err) == (mark == "debug")


def test_random_nodes_draw_what_they_drew() -> None:
    def build(graph: ExpressionGraph) -> Node:
        x = x2(graph) * graph.dropout_mask(0.5, (4, 3))
        y = mgraph.dot(x * 2.0 * 3.0, mgraph.transpose(param(graph, "w", 5, 3))) + b(graph)
        return y * graph.dropout_mask(0.3, (4, 5)) * mgraph.exp(graph.ones((1, 5)))

    check(build, "*", "*", "*", "affine", "scalar_mult")


def test_twins_become_one_node() -> None:
    def build(graph: ExpressionGraph) -> Node:
        x = x2(graph)
        return mgraph.tanh(x * 2.0 * 3.0) * mgraph.tanh(x * 6.0) + mgraph.exp(x * 3.0 * 2.0)

    check(build, "*", "+", "exp", "scalar_mult", "tanh")


def test_functions_and_inference_see_the_rewritten_graph() -> None:
    graph = ExpressionGraph(inference=True)
    x = graph.input("x", (4, 3))
    y = mgraph.log(mgraph.softmax(x * 2.0 * 2.0)) + 0.5
    expected = graph.function(y, [x])(np.float32(numbers(4, 3)))
    optimize(graph)
    f = graph.function(y, [x])
    np.testing.assert_allclose(f(np.float32(numbers(4, 3))), expected, rtol=1e-5, atol=1e-6)
    jaxpr = str(jax.make_jaxpr(lambda v: f.pure({}, [v]))(np.float32(numbers(4, 3))))
    assert jaxpr.count(" mul ") == 1


def test_equal_graphs_are_equal_when_optimized() -> None:
    def run() -> None:
        graph = ExpressionGraph()
        network(graph)
        optimize(graph)
        graph.backprop()

    run()
    before = mgraph.compile_stats()
    run()
    assert (mgraph.compile_stats() - before).misses == 0


# ------------------------------------------------------------ loops


def recurrent(graph: ExpressionGraph) -> Node:
    xs, u, v = param(graph, "xs", 5, 2, 3), param(graph, "u", 4, 4), param(graph, "v", 3, 4)
    bias = param(graph, "b", 1, 4)

    def step(h: Node, x: Node) -> tuple[Node, Node]:
        h = mgraph.tanh(mgraph.dot(mgraph.transpose(mgraph.transpose(h)), u) + (mgraph.dot(x, v) + bias))
        return h, mgraph.log(mgraph.softmax(h)) * 2.0 * 0.25

    _, results = mgraph.scan(step, graph.zeros((2, 4)), xs)
    return results


def test_the_bodies_of_loops_are_rewritten() -> None:
    report = check(recurrent, "scan", "tupleView")
    assert all(change.in_loop for change in report.changes)
    assert report.counts == {
        "transposes": 1,
        "affine": 1,
        "logsoftmax_of_parts": 1,
        "scalar_products": 1,
    }
    graph = ExpressionGraph()
    recurrent(graph)
    optimize(graph)
    (loop,) = (n for n in graph.tape.nodes if n.type == "scan")
    types = [row[0].type for row in loop.body.structure.rows if isinstance(row[0], Node)]
    assert sorted(types) == ["+", "affine", "dot", "logsoftmax", "scalar_mult", "tanh"]
    assert not optimize(graph)


def test_a_rule_that_needs_more_from_outside_leaves_loops_alone() -> None:
    @rule(Op(LogNodeOp, Label("x")))
    def with_a_constant(m: Match) -> Node:
        return mgraph.log(m.x) * m.x.graph.ones((1,))

    graph = ExpressionGraph()
    recurrent(graph)
    count = len(graph.tape.nodes)
    assert not optimize(graph, [with_a_constant])
    assert len(graph.tape.nodes) == count


# ------------------------------------------------------------ rules of one's own


class PaddedCellNodeOp(NaryNodeOp):
    """``tanh(x W + h U + b)`` where ``mask`` is 1, and ``h`` where it is 0, as one composite operator."""

    type = "padded_cell"
    scale: float = 1.0

    def forward_ops(self, x, h, w, u, bias, mask):
        y = jnp.tanh(self.scale * (x @ w + h @ u + bias))
        return mask * y + (1 - mask) * h

    def backward_ops(self, adj, val, x, h, w, u, bias, mask):
        y = jnp.tanh(self.scale * (x @ w + h @ u + bias))
        d = adj * mask * (1 - y * y) * self.scale
        return d @ w.T, d @ u.T + adj * (1 - mask), x.T @ d, h.T @ d, d, adj * (y - h)


@rule(Op(PaddedCellNodeOp, *(Label(name) for name in ("x", "h", "w", "u", "bias", "mask"))))
def lower_padded_cells(m: Match) -> Node:
    """A padded cell in core operators."""
    y = mgraph.tanh((mgraph.dot(m.x, m.w) + mgraph.dot(m.h, m.u) + m.bias) * m.root.scale)
    return m.mask * y + (1 - m.mask) * m.h


def cells(graph: ExpressionGraph) -> Node:
    mask = constant(graph, np.array([[1], [0], [1], [1]]))
    h = param(graph, "h", 4, 5)
    for _ in range(2):
        h = PaddedCellNodeOp(x2(graph), h, w(graph), param(graph, "u", 5, 5), b(graph), mask, scale=0.5)
    return h


def test_a_composite_operator_lowers_to_core_ones() -> None:
    """Two cells of nine operators each, which share their common nodes."""
    cell = "* * + + + dot tanh scalar_mult".split()
    shared = "dot negate scalar_add".split()
    report = check(cells, *cell, *cell, *shared, rules=[lower_padded_cells])
    assert report.counts == {"lower_padded_cells": 2}


def test_an_operator_may_exist_in_its_lowered_form_only() -> None:
    class Abstract(mgraph.UnaryNodeOp):
        """Has a shape and a gradient, but no code."""

        type = "abstract"
        composite = True

        def new_spec(self, x):
            return x

    @rule(Op(Abstract, Label("x")))
    def lower(m: Match) -> Node:
        return mgraph.tanh(m.x) * 2.0

    graph = ExpressionGraph()
    x = x2(graph)
    top = mgraph.sum(mgraph.flatten(Abstract(x)))
    optimize(graph, [lower])
    graph.backprop()
    np.testing.assert_allclose(top.scalar(), 2 * np.tanh(numbers(4, 3, seed=121)).sum(), rtol=1e-5)
    assert np.abs(x.grad()).max() > 0


def exps(replace: Callable[[Match], Any]) -> Rule:
    return Rule("mine", Op(ExpNodeOp, Label("x")), replace)


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (lambda m: mgraph.flatten(m.x), r"rule 'mine' cannot rewrite this exp node of float32\[4, 3\].*12\]"),
        (lambda m: mgraph.cast(m.x, "float16"), "its replacement is float16"),
        (lambda m: mgraph.stop_gradient(m.x), "its replacement is not trainable"),
        (lambda m: m.root * 2.0, "made of the node itself"),
        (lambda m: m.x * m.x.graph.dropout_mask(0.5, (4, 3)), "draws random numbers"),
        (lambda m: x2(ExpressionGraph()), "another graph|gone"),
        (lambda m: 3, "must return a node or None, got 3"),
        (lambda m: mgraph.reshape(m.x, (5,)), "rule 'mine': .*5"),
    ],
)
def test_a_wrong_replacement_is_refused(replace: Callable[[Match], Any], message: str) -> None:
    graph = ExpressionGraph()
    x = x2(graph)
    top = mgraph.sum(mgraph.flatten(mgraph.exp(x) * 2.0 * 3.0))
    with pytest.raises(mgraph.MGraphError, match=message):
        optimize(graph, [*DEFAULT, exps(replace)])
    graph.backprop()
    np.testing.assert_allclose(top.scalar(), 6 * np.exp(numbers(4, 3, seed=121)).sum(), rtol=1e-5)


def test_rules_without_an_end_are_stopped() -> None:
    there = Rule("there", Op(ExpNodeOp, Label("x")), lambda m: mgraph.log(m.x))
    back = Rule("back", Op(LogNodeOp, Label("x")), lambda m: mgraph.exp(m.x))
    graph = ExpressionGraph()
    top = mgraph.exp(x2(graph))
    with pytest.raises(GraphError, match="do not terminate.*(there|back)"):
        optimize(graph, [there, back])
    assert top.type in ("exp", "log")
    graph.backprop()


def test_rules_may_demand_that_nobody_else_looks() -> None:
    inner = Rule("inner", Op(LogNodeOp, Label("e", Op(ExpNodeOp, Label("x")))), lambda m: m.x * 1.5, ("e",))
    graph = ExpressionGraph()
    e = mgraph.exp(x2(graph))
    logged = mgraph.log(e)
    other = e + 1.0
    assert not optimize(graph, [inner])
    graph.clear()
    logged = mgraph.log(mgraph.exp(x2(graph)))
    assert optimize(graph, [inner]) and logged.type == "scalar_mult"
    assert other is not None


def test_only_nodes_can_be_alone(graph: ExpressionGraph) -> None:
    skipping = Skip(StopGradientNodeOp, Op(ExpNodeOp, Label("x")), name="skipped")
    pattern = Op(ScalarMultNodeOp, skipping, c=Field("c"))
    for alone in (("skipped", "c"), {"skipped", "c"}):
        scaled = Rule("scaled", pattern, lambda m: m.x * m.c, alone)  # type: ignore[arg-type]
        graph.clear()
        mgraph.exp(x2(graph)) * 2.0
        assert optimize(graph, [scaled])


def test_a_rule_needs_a_pattern_a_function_and_labels_of_the_pattern() -> None:
    exp = Op(ExpNodeOp, Label("x"))
    for wrong in ((3, abs), (abs, exp), (exp, 3)):
        with pytest.raises(ArgumentError, match="rule 'mine': expected a pattern and a function, got"):
            Rule("mine", *wrong)
    with pytest.raises(ArgumentError, match=r"labels among \['x'\], got 'y'"):
        rule(exp, alone=("y",))(lambda m: m.x)
    with pytest.raises(ArgumentError, match="a tuple of labels, got 'x'"):
        Rule("mine", exp, lambda m: m.x, alone="x")
    with pytest.raises(ArgumentError, match="expected patterns, got <function"):
        rule(lambda m: m.x)


def test_a_rule_declines_by_returning_nothing(graph: ExpressionGraph) -> None:
    top = mgraph.exp(x2(graph))
    assert not optimize(graph, [exps(lambda m: None), exps(lambda m: m.root)])
    assert top.type == "exp"


def test_a_rule_may_return_what_exists(graph: ExpressionGraph) -> None:
    x = x2(graph)
    twin = mgraph.tanh(x)
    top = mgraph.exp(x)
    report = optimize(graph, [exps(lambda m: again(twin, m.x))])
    assert len(report) == 1 and top.type == "tanh"
    graph.forward()
    np.testing.assert_array_equal(top.val(), twin.val())


def test_what_was_planned_before_is_planned_again(graph: ExpressionGraph) -> None:
    x = param(graph, "x", 2, 2)
    top = mgraph.sum(x * mgraph.reshape(constant(graph, numbers(4)), (2, 2)), (0, 1))
    graph.memory()
    assert graph.optimize().counts == {"constant_folding": 1}
    graph.backprop()
    assert top.scalar() == pytest.approx(float((np.asarray(x.val()) * x.grad()).sum()), rel=1e-5)
    np.testing.assert_allclose(x.grad(), numbers(4).reshape(2, 2), rtol=1e-6)


def test_order_of_calls(graph: ExpressionGraph) -> None:
    x = x2(graph)
    mgraph.exp(x)
    for wrong in ({"rules": ["affine"]}, {"rules": DEFAULT[0]}, {"keep": [3]}, {"keep": x}):
        with pytest.raises(mgraph.ArgumentError, match=r"expects a list of (rules|nodes to keep), got"):
            optimize(graph, **wrong)
    with pytest.raises(GraphError, match="its own graph"):
        optimize(graph, keep=[x2(other := ExpressionGraph())])
    assert other is not graph
    graph.forward()
    with pytest.raises(GraphError, match="before forward"):
        optimize(graph)
    graph.clear()

    def body(h: Node, y: Node) -> tuple[Node, Node]:
        optimize(graph)
        return h, y

    with pytest.raises(GraphError, match="body of a loop"):
        mgraph.scan(body, graph.zeros((3,)), x2(graph))


def test_the_report_says_what_changed_where(graph: ExpressionGraph) -> None:
    mgraph.dot(x2(graph), w(graph)) + b(graph)
    report = optimize(graph)
    (change,) = report.changes
    assert (change.rule, change.before, change.after) == ("affine", "+(dot(x, w), b)", "affine(x, w, b)")
    assert report.operators_before == 2 and report.operators_after == 1
    assert str(report).startswith("operators: 2 before, 1 after; affine 1x\naffine at ")
    assert __file__ in change.place
    assert str(optimize(graph)) == "nothing to rewrite; operators: 1"
    graph.clear()
    mgraph.dot(mgraph.transpose(param(graph, "y", 3, 4)), w(graph)) * 0.5
    told = [(change.before, change.after) for change in optimize(graph).changes]
    assert told == [
        ("dot(transpose(y, axes=(1, 0)), w)", "dot(y, w, trans_a=True)"),
        ("scalar_mult(dot(y, w, trans_a=True), c=0.5)", "dot(y, w, trans_a=True, scale=0.5)"),
    ]
