"""Graphs as functions: checked arguments, pure form, rule sets."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mgraph
from mgraph import ArgumentError, ElementTypeError, ExpressionGraph, GraphError, ShapeError, inits


def network(graph: ExpressionGraph) -> tuple[mgraph.Node, mgraph.Node]:
    x = graph.input("x", (4, 3))
    h = mgraph.tanh(mgraph.affine(x, graph.param("W", (3, 5)), graph.param("b", (1, 5), inits.zeros())))
    return x, mgraph.sum(mgraph.flatten(mgraph.square(h)))


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def test_a_function_outlives_its_graphs_nodes(graph: ExpressionGraph) -> None:
    x, loss = network(graph)
    f = graph.function(loss, [x])
    graph.clear()
    w, b = graph.params()["W"].val(), graph.params()["b"].val()
    np.testing.assert_allclose(f(X), [np.sum(np.tanh(X @ w + b) ** 2)], rtol=1e-5)
    np.testing.assert_allclose(f(x=X), f(X))


def test_a_function_outlives_its_graph() -> None:
    def made(used: bool) -> mgraph.Function[Any]:
        graph = ExpressionGraph(seed=7)
        x, loss = network(graph)
        if used:
            graph.params().vals()
        return graph.function(loss, [x])

    np.testing.assert_array_equal(made(False)(X), made(True)(X))


def test_several_outputs_come_in_order(graph: ExpressionGraph) -> None:
    a, b = graph.input("a", (2,)), graph.input("b", (2,))
    total, product = a + b, a * b
    results = graph.function([product, total], [a, b])(np.float32([1, 2]), np.float32([3, 4]))
    np.testing.assert_allclose(results[0], [3, 8])
    np.testing.assert_allclose(results[1], [4, 6])


def test_a_function_is_copied_and_not_pickled(graph: ExpressionGraph) -> None:
    f = graph.function(graph.param("w", (2,), inits.ones()) * 2)
    assert copy.copy(f)().tolist() == [2, 2]
    for copier in (pickle.dumps, copy.deepcopy):
        message = r"cannot be copied deeply or pickled: .* function\.save\(path\)(.|\n)*test_function\.py"
        with pytest.raises(GraphError, match=message):
            copier(f)


def test_equal_functions_share_a_program() -> None:
    results = []
    mgraph.clear_programs()
    for i in range(2):
        graph = ExpressionGraph()
        x, loss = network(graph)
        before = mgraph.compile_stats()
        results.append(graph.function(loss, [x])(X))
        assert (mgraph.compile_stats() - before).misses == (1 if i == 0 else 0)
    np.testing.assert_array_equal(*results)


def test_ids_of_another_integer_type_are_told_how_to_convert(graph: ExpressionGraph) -> None:
    ids = graph.indices([0, 1])
    f = graph.function(mgraph.rows(graph.param("E", (3, 2)), ids), [ids])
    for given in (np.array([2, 0], np.int32), jnp.array([2, 0])):
        with pytest.raises(ElementTypeError, match=r"uint32, got int32; pass it as \.astype\('uint32'\)$"):
            f(given)
        np.testing.assert_array_equal(f(given.astype("uint32")), f([2, 0]))


def test_pythons_numbers_are_converted_but_no_fraction_to_an_integer(graph: ExpressionGraph) -> None:
    x, i = graph.input("x", (2,)), graph.input("i", (2,), "uint8")
    f = graph.function([x, i], [x, i])
    for given in ([1, 2], [1.0, 2.0], [True, 2]):
        assert [y.tolist() for y in f(given, [3, 4])] == [[1, 2], [3, 4]]
    with pytest.raises(ElementTypeError, match="'i' has element type uint8, got float64"):
        f([1, 2], [3.0, 4.0])


def test_arguments_are_checked_before_anything_runs(graph: ExpressionGraph) -> None:
    x, loss = network(graph)
    f = graph.function(loss, [x])
    np.testing.assert_array_equal(f(memoryview(X)), f(X))
    with pytest.raises(ShapeError, match=r"'x' has shape \(4, 3\), got \(3, 4\)"):
        f(X.T)
    with pytest.raises(ElementTypeError, match="'x' has element type float32, got float64"):
        f(X.astype(np.float64))
    with pytest.raises(GraphError, match="missing: \\['x'\\]"):
        f()
    with pytest.raises(GraphError, match="unknown: \\['y'\\]"):
        f(x=X, y=X)
    with pytest.raises(GraphError, match="given twice"):
        f(X, x=X)
    with pytest.raises(GraphError, match="only once"):
        graph.function(loss, {"a": x, "b": x})
    with pytest.raises(GraphError, match="only once"):
        graph.function(loss, [x, x])
    with pytest.raises(GraphError, match="must be a leaf"):
        graph.function(loss, [loss])
    with pytest.raises(GraphError, match="missing parameters: W, b"):
        f.pure({}, [X])


def test_the_pure_form_works_under_jax(graph: ExpressionGraph) -> None:
    x, loss = network(graph)
    f = graph.function(loss, [x])
    params = graph.params().vals()
    scalar = jax.jit(lambda p, v: f.pure(p, [v])[0])
    gradient = jax.grad(scalar)(params, X)
    expected = jax.grad(lambda p: jnp.sum(jnp.tanh(X @ p["W"] + p["b"]) ** 2))(params)
    chex.assert_trees_all_close(gradient, expected, rtol=1e-5, atol=1e-6)
    by_input = jax.grad(scalar, argnums=1)(params, X)
    assert np.abs(by_input).max() > 0.01
    batched = jax.vmap(scalar, in_axes=(None, 0))(params, np.stack([X, 2 * X]))
    np.testing.assert_allclose(batched[0], f(X)[0], rtol=1e-6)
    optimizer = optax.adam(0.05)
    state = optimizer.init(params)

    @jax.jit
    @chex.assert_max_traces(n=1)
    def update(params: Any, state: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(jax.grad(scalar)(params, X), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(30):
        params, state = update(params, state)
    assert scalar(params, X) < 0.2 * f(X)[0]


def test_nothing_keeps_a_tracer(graph: ExpressionGraph) -> None:
    x, loss = network(graph)
    f = graph.function(loss, [x])
    with jax.checking_leaks():
        jax.jit(lambda p: jax.grad(lambda q: f.pure(q, [X])[0])(p))(graph.params().vals())
        graph.clear()
        y = mgraph.square(graph.params()["b"])
        graph.backprop()
        y.val()


def test_rule_sets() -> None:
    class Doubled(mgraph.UnaryNodeOp):
        """x, with a rule that gives a slope of 2."""

        type = "doubled"

        def forward_ops(self, x):
            return x * 1.0

        def backward_ops(self, adj, val, x):
            return (2 * adj,)

    @mgraph.derivative(Doubled, "marian")
    def _(self, adj, val, x):
        return (3 * adj,)

    graph = ExpressionGraph()
    x = graph.input("x", ())
    y = Doubled(x)
    slopes = {
        name: float(
            jax.grad(lambda v, name=name: graph.function(y, [x], derivatives=name).pure({}, [v]))(1.0)
        )
        for name in ("rules", "jax", "marian")
    }
    assert slopes == {"rules": 2.0, "jax": 1.0, "marian": 3.0}
    forward_mode = graph.function(y, [x], derivatives="jax")
    assert jax.jvp(lambda v: forward_mode.pure({}, [v]), (1.0,), (1.0,))[1] == 1.0
    with pytest.raises(ValueError, match="rule sets"):
        graph.function(y, [x], derivatives="theirs")


def test_random_nodes_need_a_key(graph: ExpressionGraph) -> None:
    y = graph.ones((1000,)) * graph.dropout_mask(0.5, (1000,))
    f = graph.function(y, [])
    with pytest.raises(GraphError, match="pass key"):
        f.pure({}, [])
    one = f.pure({}, [], jax.random.key(0))
    np.testing.assert_array_equal(one, f.pure({}, [], jax.random.key(0)))
    assert not np.array_equal(one, f.pure({}, [], jax.random.key(1)))
    assert 0.4 < float((one == 0).mean()) < 0.6
    assert not np.array_equal(f(), f())


def test_what_cannot_be_a_value_or_a_node_is_refused(graph: ExpressionGraph) -> None:
    small, x = graph.input("small", (2,), "uint8"), graph.input("x", (2,))
    w = graph.param("w", (2,), inits.ones())
    f = graph.function([small * 2, x * w], [small, x])
    fitting = [3, 255], [1.0, 2.0]
    np.testing.assert_array_equal(f(*fitting)[0], [6, 254])
    with pytest.raises(ElementTypeError, match="uint8, from 0 to 255, got a value from -1 to 300"):
        f([300, -1], fitting[1])
    with pytest.raises(ShapeError, match="parts differ in shape"):
        f(fitting[0], [[1.0], [2.0, 3.0]])
    for wrong in (None, "ab", [None, None], ["a", "b"], {"x": 1}):
        with pytest.raises(ArgumentError, match="input 'x' takes an array of numbers, got .* of type"):
            f(fitting[0], wrong)
    with pytest.raises(ArgumentError, match="input 'x' takes an array, got a param node"):
        f(fitting[0], w)
    with pytest.raises(ShapeError, match=r"parameter 'w' has shape \(2,\), got \(\)"):
        f.pure({"w": jnp.ones(())}, [np.uint8(fitting[0]), jnp.ones(2)])
    for outputs, inputs in ((3, []), ([x, 3], []), (x, 3), (x, [3]), (x, {"x": 3})):
        with pytest.raises(ArgumentError, match="of a function are nodes"):
            graph.function(outputs, inputs)


def test_results_share_no_memory_with_arguments_or_each_other(graph: ExpressionGraph) -> None:
    a = graph.input("a", (64, 64))
    x = jnp.ones((64, 64))
    results = graph.function([a, a, a * 2, a * 2], [a])(x)
    assert len({r.unsafe_buffer_pointer() for r in (*results, x)}) == 5


def test_every_call_of_every_function_draws_anew() -> None:
    graph = ExpressionGraph(seed=3)
    masks = []
    for _ in range(3):
        graph.clear()
        f = graph.function(graph.dropout_mask(0.5, (64,)), [])
        masks += [np.asarray(f()).tobytes(), np.asarray(f()).tobytes()]
    assert len(set(masks)) == 6
    other = ExpressionGraph(seed=3 + 2**32)
    assert np.asarray(other.function(other.dropout_mask(0.5, (64,)), [])()).tobytes() not in masks


def test_the_pure_form_takes_inputs_as_a_list_or_by_name(graph: ExpressionGraph) -> None:
    x = graph.input("x", (2, 3))
    pure = graph.function(mgraph.exp(x), [x]).pure
    with pytest.raises(ArgumentError, match=r"inputs \['x'\] as a list or by name, got an array of shape"):
        pure({}, np.ones((1, 2, 3), np.float32))


def test_a_function_called_inside_jit_points_to_its_pure_form(graph: ExpressionGraph) -> None:
    x = graph.input("x", (2,))
    f = graph.function(x * graph.dropout_mask(0.5, (2,)), [x])
    with pytest.raises(GraphError, match=r"call fn.pure\(params, inputs, key\)"):
        jax.jit(lambda v: f(v))(jnp.ones(2))
    with pytest.raises(ArgumentError, match="expected a random key"):
        f.pure({}, [jnp.ones(2)], 3)
