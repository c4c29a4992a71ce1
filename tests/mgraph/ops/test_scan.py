"""Loops over time as one node."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, GraphError, ShapeError, inits, scan
from mgraph.ops.product import AffineNodeOp
from mgraph.platforms import Options, compiler_wishes
from mgraph.running.memory import MemoryUse

XS = np.random.default_rng(0).standard_normal((6, 2, 3)).astype(np.float32)


def recurrent(graph: ExpressionGraph, xs: mgraph.Node, *, reverse: bool = False):
    u, w = graph.param("U", (4, 4)), graph.param("W", (3, 4))

    def step(h, x):
        h = mgraph.tanh(mgraph.dot(h, u) + mgraph.dot(x, w))
        return h, h * 2.0

    return scan(step, graph.zeros((2, 4)), xs, reverse=reverse)


def unrolled(u, w, xs):
    h, out = np.zeros((2, 4)), []
    for x in xs:
        h = np.tanh(h @ u + x @ w)
        out.append(2 * h)
    return h, np.stack(out)


@pytest.mark.parametrize("reverse", [False, True])
def test_values_equal_the_unrolled_loop(graph: ExpressionGraph, reverse: bool) -> None:
    last, results = recurrent(graph, graph.constant(XS.shape, inits.from_tensor(XS)), reverse=reverse)
    graph.forward()
    u, w = graph.params()["U"].val(), graph.params()["W"].val()
    h, out = unrolled(u, w, XS[::-1] if reverse else XS)
    np.testing.assert_allclose(last.val(), h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results.val(), out[::-1] if reverse else out, rtol=1e-5, atol=1e-6)


def test_gradients_of_the_body_rules_match_jax_and_differences(graph: ExpressionGraph) -> None:
    xs = graph.param("xs", XS.shape, inits.from_tensor(XS))
    last, results = recurrent(graph, xs)
    loss = mgraph.sum(mgraph.flatten(results * results)) + mgraph.sum(mgraph.flatten(last))
    report = mgraph.check_gradients(loss)
    assert report.ok, report
    assert {c.name for c in report.checks} == {"xs", "U", "W"}


def test_wrong_rules_inside_a_body_are_seen() -> None:
    class Off(mgraph.UnaryNodeOp):
        type = "off"

        def forward_ops(self, x):
            return 2 * x

        def backward_ops(self, adj, val, x):
            return (2.02 * adj,)

    graph = ExpressionGraph()
    w = graph.param("w", (3,), inits.ones())
    xs = graph.constant((4, 3), inits.normal())
    last, _ = scan(lambda h, x: (Off(h) * 0.5 + x * w, ()), graph.zeros((3,)), xs)
    assert not mgraph.check_gradients(mgraph.sum(last)).ok


def test_body_nodes_on_outer_nodes_alone_stay_outside(graph: ExpressionGraph) -> None:
    w = graph.param("w", (3,), inits.ones())
    xs = graph.constant((5, 3), inits.ones())
    sines = []

    def step(h, x):
        sines.append(mgraph.sin(w))
        return h + x * sines[0], ()

    last, results = scan(step, graph.zeros((3,)), xs)
    assert results == ()
    assert sines[0] in graph.tape.nodes
    mgraph.sum(last)
    graph.backprop()
    np.testing.assert_allclose(w.grad(), 5 * np.cos([1.0] * 3), rtol=1e-6)


def test_several_states_and_sequences_of_mixed_type(graph: ExpressionGraph) -> None:
    table = graph.param("table", (7, 2), inits.normal())
    ids = graph.constant((4, 3), inits.from_vector([0, 1, 2, 3, 4, 5, 6, 6, 6, 1, 1, 1]), "uint32")
    mask = graph.constant((4, 3, 1), inits.from_vector([1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0]))

    def step(state, x):
        total, count = state
        row, m = x
        return (total + mgraph.rows(table, row) * m, count + m), total

    (total, count), before = scan(step, (graph.zeros((3, 2)), graph.zeros((3, 1))), (ids, mask))
    mgraph.sum(mgraph.flatten(total / count))
    graph.backprop()
    t = np.asarray(table.val())
    np.testing.assert_allclose(total.val()[1], t[1] + t[4], rtol=1e-5)
    np.testing.assert_allclose(count.val()[:, 0], [4, 2, 1])
    assert before.shape == (4, 3, 2)
    np.testing.assert_allclose(table.grad()[4], [0.5, 0.5], rtol=1e-5)


def test_loops_nest(graph: ExpressionGraph) -> None:
    w = graph.param("w", (), inits.from_value(0.9))
    grid = graph.constant((3, 4), inits.range(0, 12))

    def row(total, line):
        inner, _ = scan(lambda s, v: (s * w + v, ()), graph.zeros(()), line)
        return total + inner, ()

    total, _ = scan(row, graph.zeros(()), grid)
    graph.backprop()

    def plain(w):
        result = 0.0
        for line in np.arange(12.0).reshape(3, 4):
            inner = 0.0
            for v in line:
                inner = inner * w + v
            result += inner
        return result

    np.testing.assert_allclose(total.val(), plain(0.9), rtol=1e-5)
    np.testing.assert_allclose(w.grad(), jax.grad(plain)(0.9), rtol=1e-5)


def test_equal_bodies_are_one_operator_and_any_length_compiles_alike(graph: ExpressionGraph) -> None:
    programs = []
    for length in (8, 8, 128):
        graph.clear()
        last, _ = recurrent(graph, graph.constant((length, 2, 3), inits.from_value(0.1)))
        mgraph.sum(mgraph.flatten(last))
        programs.append(len(graph.tape.nodes))
        before = mgraph.compile_stats()
        graph.backprop()
        misses = (mgraph.compile_stats() - before).misses
        if len(programs) == 2:
            assert misses == 0
    assert len(set(programs)) == 1


def test_mistakes_in_a_body_are_named(graph: ExpressionGraph) -> None:
    xs = graph.zeros((3, 2))
    with pytest.raises(ShapeError, match=r"state 0 has shape \(2,\), after a step \(1,\)"):
        scan(lambda h, x: (mgraph.sum(x), ()), graph.zeros((2,)), xs)
    with pytest.raises(GraphError, match=r"must return \(state, result\)"):
        scan(lambda h, x: h, graph.zeros((2,)), xs)
    with pytest.raises(ShapeError, match="common first axis"):
        scan(lambda h, x: (h, ()), graph.zeros((2,)), (xs, graph.zeros((4, 2))))
    kept = []

    def leaking(h, x):
        kept.append(h + x)
        return kept[0], ()

    scan(leaking, graph.zeros((2,)), xs)
    with pytest.raises(GraphError, match="loop whose body it belongs to is complete"):
        kept[0] + graph.zeros((2,))


def test_results_are_arrays_and_steps_are_counted(graph: ExpressionGraph) -> None:
    xs = graph.ones((3, 4))
    with pytest.raises(GraphError, match="topk node with several outputs"):
        scan(lambda s, x: (s, mgraph.topk(x, 2, -1)[0].child(0)), graph.ones((4,)), xs)
    assert scan(lambda s, x: (s, x), graph.ones((4,)), xs, unroll=np.int64(2))[1].shape == (3, 4)
    for unroll in (0, 2.5):
        with pytest.raises(ArgumentError, match="unroll"):
            scan(lambda s, x: (s, x), graph.ones((4,)), xs, unroll=unroll)


def weaving(graph: ExpressionGraph, xs: mgraph.Node, *, reverse: bool = False) -> mgraph.Node:
    """A loop with all that a backward loop may meet: weights used as they are, transposed, in batches and on
    the left of a product; a state that becomes an outside node; integer states and results; an operator with
    several outputs; a nested loop."""
    u, w, v = graph.param("U", (4, 4)), graph.param("W", (4, 3)), graph.param("V", (2, 4, 4))
    b, q = graph.param("b", (1, 4)), graph.param("q", (2, 4))
    count = graph.constant((2,), inits.zeros(), "int32")

    def step(states, x):
        h, last, count = states
        mixed = mgraph.affine(h, u, b, scale=0.5) + mgraph.dot(x, w, trans_b=True)
        batched = mgraph.reshape(mgraph.bdot(mgraph.reshape(mixed, (2, 1, 4)), v), (2, 4))
        left = mgraph.tanh(mgraph.dot(u, mgraph.dot(w, x, trans_b=True), trans_a=True))
        top = mgraph.topk(batched, 2, -1)[0]
        inner, _ = scan(
            lambda s, y: (s * y + b, ()), mgraph.reshape(mgraph.sum(top, 1), (2, 1)) + b, xs[:, :, :1]
        )
        after = mgraph.tanh(inner * 0.1 + last + mgraph.sum(mgraph.flatten(left)))
        return (after, q, count + 1), (after, count, q)

    (h, last, _), (out, counts, qs) = scan(step, (graph.zeros((2, 4)), q * 2.0, count), xs, reverse=reverse)
    assert counts.value_type.is_index
    return mgraph.sum(mgraph.flatten(out * out)) + mgraph.sum(mgraph.flatten(h + last * qs))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.sampled("True")
def test_the_backward_loop_follows_whatever_the_body_does(graph: ExpressionGraph, reverse: bool) -> None:
    report = mgraph.check_gradients(weaving(graph, graph.param("xs", (3, 2, 3)), reverse=reverse))
    assert report.ok, report
    assert {c.name for c in report.checks} == {"xs", "U", "W", "V", "b", "q"}


def products_in_loops(
    graph: ExpressionGraph, derivatives: str = "rules", options: Options | None = None
) -> list[str]:
    """The lines in the compiled gradient of ``recurrent`` that multiply matrices inside loops."""
    xs = graph.input("xs", XS.shape)
    last, results = recurrent(graph, xs)
    loss = mgraph.sum(mgraph.flatten(results)) + mgraph.sum(mgraph.flatten(last))
    pure = graph.function(loss, [xs], derivatives=derivatives).pure
    gradient = jax.jit(jax.grad(lambda p: pure(p, {"xs": XS}).sum()))
    text = gradient.lower(graph.params().vals()).compile(options).as_text()
    return re.findall(r"f32\[.* dot\(.*while/body.*", text)


@pytest.mark.parametrize("derivatives", ["rules", "jax"])
def test_gradients_of_weights_are_products_after_the_loop(graph: ExpressionGraph, derivatives: str) -> None:
    products = products_in_loops(graph, derivatives)
    assert any(product.startswith("f32[2,4]") for product in products)
    assert any(product.startswith("f32[4,4]") for product in products) == (derivatives == "jax")


def test_backward_loops_multiply_by_weights_transposed_before(graph: ExpressionGraph) -> None:
    """``adj U^T`` contracts the rows of the copy, as ``h U`` contracts those of ``U``."""
    products = products_in_loops(graph, options=compiler_wishes("cpu"))
    assert len(products) >= 2 and all("rhs_contracting_dims={0}" in product for product in products)


def layers_of_loops(layers: int) -> tuple[MemoryUse, str]:
    """The memory and the text of the compiled gradient of recurrent layers: 64 steps of 16 states of 32."""
    graph = ExpressionGraph()
    first = xs = graph.input("xs", (64, 16, 32))
    for i in range(layers):
        w, u = graph.param(f"W{i}", (32, 32)), graph.param(f"U{i}", (32, 32))

        def step(h, x, u=u):
            h = mgraph.tanh(mgraph.dot(h, u) + x)
            return h, h

        _, xs = scan(step, graph.zeros((16, 32)), mgraph.dot(xs, w))
    pure = graph.function(mgraph.sum(mgraph.flatten(xs)), [first]).pure
    gradient = jax.jit(jax.grad(lambda p, x: pure(p, {"xs": x}).sum()))
    shape = jax.ShapeDtypeStruct(first.shape, np.float32)
    compiled = gradient.lower(graph.params().vals(), shape).compile(compiler_wishes("cpu"))
    return MemoryUse.of(compiled, None), compiled.as_text()


def test_loops_take_memory_when_they_run() -> None:
    """A layer keeps ``xs W``, its results, the states before each step and the products ``h U``; gradients
    stacked by one loop are not held during another, and do not begin as copies."""
    (two, _), (four, text) = layers_of_loops(2), layers_of_loops(4)
    assert four.temporaries - two.temporaries < 2 * 4.1 * (4 * 64 * 16 * 32)
    assert not re.findall(r"f32\[64,16,32\]\S* copy\(%\S*broadcast", text)


def test_a_loop_may_change_both_factors_of_a_product(graph: ExpressionGraph) -> None:
    def step(h: mgraph.Node, x: mgraph.Node):
        return mgraph.affine(h, mgraph.reshape(x, (3, 3)), bias), ()

    bias, xs = graph.param("b", (1, 3), inits.normal()), graph.param("xs", (4, 9), inits.normal())
    last, _ = scan(step, graph.param("first", (2, 3), inits.normal()), xs)
    report = mgraph.check_gradients(last)
    assert report.ok and len(report.checks) == 3, report


def test_a_loop_may_change_the_bias_of_a_product(graph: ExpressionGraph) -> None:
    def step(h: mgraph.Node, x: mgraph.Node):
        return mgraph.tanh(mgraph.affine(h, w, mgraph.sum(h) + x)), ()

    w, xs = graph.param("W", (3, 3), inits.normal()), graph.param("xs", (4, 1, 3), inits.normal())
    last, _ = scan(step, graph.param("first", (2, 3), inits.normal()), xs)
    report = mgraph.check_gradients(last)
    assert report.ok and len(report.checks) == 3, report


@pytest.mark.parametrize("inference", [False, True])
def test_a_loop_without_steps_returns_its_first_state(inference: bool) -> None:
    graph = ExpressionGraph(inference)
    first = graph.param("first", (2, 3), inits.ones())
    last, results = scan(lambda h, x: (h * x, h + x), first, graph.zeros((0, 2, 3)))
    loss = mgraph.sum(mgraph.flatten(last))
    graph.forward()
    assert loss.scalar() == 6 and results.val().shape == (0, 2, 3)
    if not inference:
        graph.backward()
        np.testing.assert_array_equal(first.grad(), np.ones((2, 3)))


def test_a_products_own_rule_sees_its_value_in_every_step() -> None:
    """The gradient of a weight is computed after the loop only if the rule is a product's."""

    class AffineRelu(AffineNodeOp):
        type = "affine_relu"

        def forward_ops(self, a, b, bias):
            return jax.nn.relu(super().forward_ops(a, b, bias))

        def backward_ops(self, adj, val, a, b, bias):
            return super().backward_ops(adj * (val > 0), val, a, b, bias)

    graph = ExpressionGraph()
    w, b = graph.param("W", (3, 3)), graph.param("b", (1, 3), inits.zeros())
    last, _ = scan(
        lambda h, x: (AffineRelu(h + x, w, b), ()),
        graph.zeros((2, 3)),
        graph.constant(XS.shape, inits.from_tensor(XS)),
    )
    report = mgraph.check_gradients(mgraph.sum(mgraph.flatten(last)))
    assert report.ok, report


def test_loops_name_what_is_no_node(graph: ExpressionGraph) -> None:
    xs = graph.ones((3, 2))
    with pytest.raises(GraphError, match=r"or \(\) for nothing, got None"):
        scan(lambda h, x: (h + x, None), graph.zeros((2,)), xs)
    with pytest.raises(GraphError, match=r"expected a node or a tuple of nodes, got 0.0"):
        scan(lambda h, x: (h, ()), 0.0, xs)
    both = mgraph.topk(graph.ones((3,)), 2, -1)[0].children[0]
    with pytest.raises(GraphError, match="topk node has several outputs"):
        scan(lambda h, x: (h, ()), both, xs)
    with pytest.raises(GraphError, match="none to print"):
        scan(lambda h, x: ((h + x).debug("h"), ()), graph.zeros((2,)), xs)
