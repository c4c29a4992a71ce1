"""Traced values, arrays among nodes, numpy's functions, copies: misuse is refused with a clear message."""

from __future__ import annotations

import copy
import operator
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    MGraphError,
    ShapeError,
    inits,
)
from mgraph.gradcheck.survey import own_operators

HERE = r"(.|\n)*test_misuse\.py:\d+"


@pytest.mark.parametrize("call", [
    lambda x: mgraph.dot(x, x, 0.5),  # Marian's third argument is trans_a
    lambda x: mgraph.affine(x, x, x, np.ones(2)),
    lambda x: mgraph.bdot(x, x, trans_b="yes"),
    lambda x: mgraph.cumsum(x, 0, 1.5),
    lambda x: mgraph.topk(x, 1, 0, x),
    lambda x: mgraph.scan(lambda s, v: (s + v, v), x[0], x, reverse="no"),
    lambda x: x.graph.indices([1], x, "0"),
    lambda x: x.graph.reserve_workspace_mb("a"),
    lambda x: x.graph.backprop(np.ones(2)),
    lambda x: x.graph.backward("no"),
    lambda x: x.graph.profile(np.ones(2)),
    lambda x: x.graph.fusion_report(np.ones(2)),
    lambda x: x.graph.html(statistics=np.ones(2)),
    lambda x: x.graph.param("w", (2,), fixed=np.ones(2)),
    lambda x: x.graph.set_inference(np.ones(2)),
    lambda x: x.graph.set_checkpointing(np.ones(2)),
    lambda x: x.graph.set_throw_nan("no"),
    lambda x: x.graph.set_strict_broadcasting("no"),
    lambda x: x.set_trainable(np.ones(2)),
    lambda x: x.graph.load({}, "no"),
    lambda x: ExpressionGraph(np.ones(2)),
    lambda x: inits.glorot_uniform(0.5),
    lambda x: inits.glorot_normal(False, "yes"),
])  # fmt: skip
def test_a_flag_or_an_axis_that_is_none_is_refused(
    graph: ExpressionGraph, call: Callable[[Any], Any]
) -> None:
    with pytest.raises(ArgumentError, match="must be (true or false|a whole number), got" + HERE):
        call(graph.ones((2, 2)))


@pytest.mark.parametrize(("call", "expected"), [
    (lambda x: mgraph.callback(x, lambda: 0), "callback expects a function of a node"),
    (lambda x: inits.from_lambda(lambda shape: 0), r"expects function\(shape, dtype\)"),
])  # fmt: skip
def test_functions_of_other_arguments_are_refused(
    graph: ExpressionGraph, call: Callable[[Any], Any], expected: str
) -> None:
    with pytest.raises(ArgumentError, match=expected + HERE):
        call(graph.ones((2, 2)))


def test_one_random_key_is_expected(graph: ExpressionGraph) -> None:
    pure = graph.function(mgraph.dropout(graph.ones((2, 2)), 0.5)).pure
    for wrong in (3, np.ones(3), jax.random.split(jax.random.key(0), 3), jnp.uint32(3)):
        with pytest.raises(
            ArgumentError, match=r"expected a random key such as jax.random.key\(seed\), got "
        ):
            pure({}, key=wrong)
    drawn = pure({}, key=jax.random.key(0))
    np.testing.assert_array_equal(pure({}, key=jax.random.PRNGKey(0)), drawn)
    each = jax.vmap(lambda key: pure({}, key=key))(jax.random.split(jax.random.key(0), 3))
    assert each.shape == (3, 2, 2)


def test_none_is_no_element_type(graph: ExpressionGraph) -> None:
    """numpy takes it for float64."""
    with pytest.raises(ElementTypeError, match="expected an element type .*, got None"):
        mgraph.cast(graph.ones((2,)), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [np.ones(2), ["rules"], 1, b"jax"])
def test_what_is_no_rule_set_is_refused(graph: ExpressionGraph, wrong: Any) -> None:
    x = graph.ones((2,))
    function = graph.function(x)
    for call in (
        lambda: graph.function(x, derivatives=wrong),
        lambda: function.clone(derivatives=wrong),
        lambda: ExpressionGraph(derivatives=wrong),
    ):
        with pytest.raises(ArgumentError, match="expected one of the rule sets .*, got "):
            call()


def test_a_traced_value_in_the_place_of_a_node_is_pointed_to_jax_numpy() -> None:
    with pytest.raises(ElementTypeError, match="on values that JAX traces call functions of jax.numpy"):
        jax.jit(lambda v: mgraph.sin(v))(np.ones(2))


def test_numpys_and_integer_flags_are_taken(graph: ExpressionGraph) -> None:
    x = graph.ones((2, 3))
    assert mgraph.dot(x, x, np.bool_(False), 1) is mgraph.dot(x, x, False, True)


@pytest.mark.parametrize("call", [
    lambda: mgraph.clip("x", 0), lambda: mgraph.clip_gradient("x", 0), lambda: mgraph.repeat("x", 1),
    lambda: mgraph.concatenate({"x": 1}),
])  # fmt: skip
def test_what_is_no_node_is_not_returned_by_shortcuts(call: Callable[[], Any]) -> None:
    with pytest.raises(ElementTypeError, match="expected a node, got 'x' of type str" + HERE):
        call()


def test_indices_like_what_is_no_node_are_refused(graph: ExpressionGraph) -> None:
    with pytest.raises(ElementTypeError, match="indices: expected a node" + HERE):
        graph.indices([0, 1], np.ones((2, 2)), 0)


def test_a_highway_around_a_scalar_is_refused(graph: ExpressionGraph) -> None:
    with pytest.raises(ShapeError, match="expected rows of features, got a scalar" + HERE):
        mgraph.highway("h", graph.ones(()))


@pytest.mark.parametrize(
    "name, hint",
    [
        ("sum", "operators are functions: mgraph.sum(x)"),
        ("reshape", "operators are functions: mgraph.reshape(x)"),
        ("T", "see mgraph.transpose(x)"),
        ("dtype", "see x.value_type"),
    ],
)
def test_attributes_of_arrays_are_pointed_to_what_nodes_have(
    graph: ExpressionGraph, name: str, hint: str
) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"ConstantNode has no attribute '{name}'; {hint}")):
        getattr(graph.ones((2, 2)), name)


def test_classes_are_not_pointed_to_as_operators(graph: ExpressionGraph) -> None:
    with pytest.raises(AttributeError, match="ConstantNode has no attribute 'ShapeError'$"):
        _ = graph.ones((2, 2)).ShapeError


TRACED: dict[str, Callable[[ExpressionGraph, Any], Any]] = {
    "parameter 'w' takes": lambda g, v: g.param("w", (2,), inits.ones()).set_value(v),
    "input 'i' takes": lambda g, v: g.input("i", (2,)).set_value(v),
    "inits.from_tensor takes": lambda g, v: g.constant((2,), inits.from_tensor(v)),
    "inits.from_vector takes": lambda g, v: g.constant((2,), inits.from_vector([v[0], v[1]])),
    "inits.from_value takes": lambda g, v: g.constant((2,), inits.from_value(v[0])),
    "inits.from_lambda takes": lambda g, v: g.constant((2,), inits.from_lambda(lambda s, t: v)),
    "indices takes": lambda g, v: g.indices(v),
    "item 'w' takes": lambda g, v: g.load({"w": v}),
}


@pytest.mark.parametrize("message", TRACED)
@pytest.mark.parametrize(
    "transformation", [jax.jit, lambda f: jax.grad(lambda x: f(x) or jnp.sum(x)), jax.vmap]
)
def test_a_traced_value_is_refused_and_pointed_to_pure(
    graph: ExpressionGraph, message: str, transformation: Callable[..., Any]
) -> None:
    def use(value: Any) -> None:
        values = value if value.ndim else jnp.stack([value, value])
        TRACED[message](graph, values)

    with pytest.raises(GraphError, match=message + r" .* is tracing (.|\n)*\.pure\(" + HERE):
        transformation(use)(jnp.ones(2))


TRANSFORMATIONS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "jit": jax.jit,
    "grad": jax.grad,
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None]),
}
RUNS: dict[str, Callable[[ExpressionGraph, Any], Any]] = {
    "forward": lambda graph, top: (graph.forward(), top.val()),
    "backward": lambda graph, top: graph.backprop(),
    "a function": lambda graph, top: graph.function(top)(),
    "a new parameter": lambda graph, top: graph.param("drawn", (2,), inits.normal()).val(),
}


@pytest.mark.parametrize("what", RUNS)
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_what_runs_inside_a_transformation_is_pointed_to_pure_and_keeps_no_tracer(
    graph: ExpressionGraph, name: str, what: str
) -> None:
    w = graph.param("w", (2,), inits.from_vector([1.0, 2.0]))
    top = mgraph.sum(w * w + graph.constant((2,), inits.ones()))

    def use(x: Any) -> Any:
        if what == "a new parameter":
            return x * RUNS[what](graph, top)[0]
        with pytest.raises(GraphError, match=r"JAX is tracing here(.|\n)*\.pure\(" + HERE):
            RUNS[what](graph, top)
        return x

    for _ in range(2):
        TRANSFORMATIONS[name](use)(jnp.ones(()))
        graph.forward()  # even a program that is compiled already may not run there
        assert top.val() == 7 and np.isfinite(graph.params()["w"].val()).all()
        graph.clear()
        w = graph.param("w", (2,), inits.ones())
        top = mgraph.sum(w * w + graph.constant((2,), inits.ones()))
    assert not any(isinstance(value, jax.core.Tracer) for value in graph.params().vals().values())


def test_an_optimizer_inside_a_transformation_keeps_no_tracer(graph: ExpressionGraph) -> None:
    w, optimizer = graph.param("w", (2,), inits.ones()), mgraph.Adam(0.5)
    mgraph.sum(w * w)
    graph.backprop()
    with pytest.raises(GraphError, match=r"JAX is tracing here"):
        jax.jit(lambda x: (optimizer.update(graph), x))(1.0)
    optimizer.update(graph)
    np.testing.assert_allclose(w.val(), 0.5, rtol=1e-5)


@pytest.mark.parametrize("name", [("a",), 3, b"a", None])
@pytest.mark.parametrize("call", [
    lambda g, name: g.input(name, (2,)),
    lambda g, name: g.constant((2,), name=name),
    lambda g, name: g.function(g.ones((2,)), {name: g.input("x", 2)}),
    lambda g, name: g.switch_params(name),
    lambda g, name: g.load({name: np.ones(2)}),
    lambda g, name: g.ones((2,)).set_name(name),
    lambda g, name: setattr(g.ones((2,)), "name", name),
])  # fmt: skip
def test_names_are_texts(graph: ExpressionGraph, call: Callable[[Any, Any], Any], name: Any) -> None:
    what = "(the name of an? (input|constant|node|item)|a namespace)"
    with pytest.raises(ArgumentError, match=f"^{what} must be a string, got " + HERE):
        call(graph, name)


def test_a_parameter_keeps_its_name(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2,), inits.ones())
    assert w.set_name("w") is w
    with pytest.raises(GraphError, match="parameter 'w' cannot be called 'v'" + HERE):
        w.set_name("v")
    with pytest.raises(GraphError, match="parameter 'w' cannot be called 'v'" + HERE):
        w.name = "v"
    assert w.name == "w"
    with pytest.raises(ArgumentError, match="the name of a node must be a string, got 3" + HERE):
        (w + w).set_name(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_graphs_and_nodes_are_not_copied(graph: ExpressionGraph, copier: Callable[[Any], Any]) -> None:
    node = graph.ones((2,)) * 2.0
    with pytest.raises(GraphError, match=r"a graph cannot be copied or pickled; graph\.save\(\)" + HERE):
        copier(graph)
    with pytest.raises(GraphError, match=r"a scalar_mult node cannot be copied or pickled" + HERE):
        copier(node)
    assert copy.deepcopy(node.operator) is copy.copy(node.operator) is node.operator


@pytest.mark.parametrize(
    "index", [np.array([0, 1]), [0, 1], (0, [1]), None, "a", np.array([True, False]), 1.0, True, np.True_]
)
def test_positions_in_lists_and_arrays_point_to_index_select(graph: ExpressionGraph, index: Any) -> None:
    with pytest.raises(ElementTypeError, match=r"expected ints and slices, got .*index_select\(" + HERE):
        graph.ones((2, 3))[index]


OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "@": operator.matmul,
    "**": operator.pow,
    "<": operator.lt,
}


@pytest.mark.parametrize(
    "array", [np.ones((2, 2)), jnp.ones((2, 2)), [[1.0]], (1.0, 2.0)], ids=lambda a: type(a).__name__
)
@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "@", "**", "<"])
def test_arrays_are_no_operands(graph: ExpressionGraph, symbol: str, array: Any) -> None:
    x, operation, symbol = graph.ones((2, 2)), OPERATIONS[symbol], re.escape(symbol)
    with pytest.raises(
        ElementTypeError, match=rf"{symbol}: expected a node.*got (.|\n)*inits\.from_tensor\(" + HERE
    ):
        operation(x, array)
    with pytest.raises(MGraphError, match=r"(expected a node.*got|is not an array)(.|\n)*" + HERE):
        operation(array, x)


def test_numpys_numbers_are(graph: ExpressionGraph) -> None:
    x = graph.constant((2,), inits.from_vector([1, 4]))
    two = np.float32(2)
    sums = [
        two + x,
        x + two,
        two - x,
        two * x,
        two / x,
        two**x,
        mgraph.pow(x, np.float64(0.5)),
        two < x,
        two >= x,
    ]
    graph.forward()
    found = [np.asarray(node.val()).tolist() for node in sums]
    assert found[:5] == [[3, 6], [3, 6], [1, -2], [2, 8], [2, 0.5]]
    np.testing.assert_allclose(found[5:7], [[2, 16], [1, 2]], rtol=1e-6)
    assert found[7:] == [[0, 1], [1, 0]]
    assert (two == x) is False and (x != two) is True


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "np.sin": np.sin,
    "np.maximum": lambda x: np.maximum(x, x),
    "np.mean": np.mean,
    "np.asarray": np.asarray,
    "jnp.sin": jnp.sin,
    "jnp.sum": jnp.sum,
    "jnp.asarray": jnp.asarray,
    "jax.nn.softmax": jax.nn.softmax,
    "jax.jit": jax.jit(lambda x: x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_arrays_take_no_nodes(graph: ExpressionGraph, name: str) -> None:
    with pytest.raises(
        GraphError, match=r"const node of float32\[2, 2\] is not an array(.|\n)*mgraph\.sin" + HERE
    ):
        FUNCTIONS[name](graph.ones((2, 2)))


@pytest.mark.parametrize(
    "make",
    [
        lambda g: g.constant((1 << 40, 1 << 40)),
        lambda g: g.constant((1 << 50,)),
        lambda g: g.constant((1 << 45,), inits.uniform()) + 1,
        lambda g: g.param("w", (1 << 25, 1 << 25)).val(),
        lambda g: g.param("w", (1 << 40, 1 << 40)).val(),
        lambda g: g.ones((1 << 62, 4), "uint8"),
        lambda g: mgraph.check_gradients(mgraph.sin, (1 << 47,)),
        lambda g: mgraph.repeat(g.ones((2,)), 1 << 40),
        lambda g: mgraph.repeat(g.ones((2, 3)), 1 << 62, 1),
    ],
)
def test_what_is_too_large_for_memory_is_named_with_its_line(graph: ExpressionGraph, make: Any) -> None:
    with pytest.raises(ShapeError, match=r"GiB, more than is available" + HERE):
        make(graph)
        graph.forward()
        graph.tape.nodes[-1].val()


def test_ragged_lists_are_refused(graph: ExpressionGraph) -> None:
    for init in (inits.from_tensor, inits.from_vector, inits.from_item):
        with pytest.raises(ShapeError, match="whose parts differ in shape" + HERE):
            graph.constant((3,), init([[1.0], [2.0, 3.0]]))


NO_NUMBERS: dict[str, Callable[[ExpressionGraph, Any, Any], Any]] = {
    "sqrt: eps": lambda g, x, v: mgraph.sqrt(x, v),
    "prelu: alpha": lambda g, x, v: mgraph.prelu(x, v),
    "clip: c": lambda g, x, v: mgraph.clip(x, v),
    "clip_gradient: c": lambda g, x, v: mgraph.clip_gradient(x, v),
    "dot: scale": lambda g, x, v: mgraph.dot(x, x, scale=v),
    "layer_normalization: eps": lambda g, x, v: mgraph.layer_norm(x, eps=v),
    "cross_entropy: label_smoothing": lambda g, x, v: mgraph.cross_entropy(x, g.indices([0, 1]), v),
    "shift: the number": lambda g, x, v: mgraph.shift(x, (1, 0), v),
    "inits.uniform: b": lambda g, x, v: inits.uniform(0, v),
    "inits.eye: value": lambda g, x, v: inits.eye(v),
    "inits.dropout: p": lambda g, x, v: inits.dropout(v),
}
NO_INTS: dict[str, Callable[[ExpressionGraph, Any, Any], Any]] = {
    "topk: k": lambda g, x, v: mgraph.topk(x, v, 0),
    "repeat: repeats": lambda g, x, v: mgraph.repeat(x, v),
    "narrow: length": lambda g, x, v: mgraph.narrow(x, 0, 0, v),
    "slice: range": lambda g, x, v: mgraph.slice(x, 0, v),
    "one_hot: depth": lambda g, x, v: mgraph.one_hot(g.indices([0]), v),
    "choose: index": lambda g, x, v: mgraph.choose([x], v),
    "get: i": lambda g, x, v: mgraph.get(mgraph.sort(x, 0), v),
    "atleast_nd: n": lambda g, x, v: mgraph.atleast_nd(x, v),
    "fake_quantize: bits": lambda g, x, v: mgraph.fake_quantize(x, v),
    "replace_slice: a position": lambda g, x, v: mgraph.replace_slice(x, [v], 0),
    "transpose: each of axes": lambda g, x, v: mgraph.transpose(x, [v, 0]),
}


@pytest.mark.parametrize("what", NO_NUMBERS | NO_INTS)
def test_what_is_no_number_is_named_with_its_argument(graph: ExpressionGraph, what: str) -> None:
    x = graph.param("x", (2, 2))
    other = 10**400 if what in NO_NUMBERS else 1.5
    for wrong in ("1e-6", None, [1.0, 2.0], x, np.ones(3), other):
        kind = "number" if what in NO_NUMBERS else "whole number"
        with pytest.raises(ArgumentError, match=f"^{what} must be a {kind}, got " + HERE):
            (NO_NUMBERS | NO_INTS)[what](graph, x, wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: mgraph.concatenate(x, x), "concatenate: expected a list of nodes, got ParamNode('x'"),
        (lambda x: mgraph.choose(x, 0), "choose: expected a list of nodes, got ParamNode('x'"),
        (lambda x: mgraph.tanh(x, 1), "tanh: expected a list of nodes, got 1 of type int"),
        (lambda x: mgraph.transpose(x, 0), "transpose: axes must be whole numbers, got 0 of type int"),
        (lambda x: mgraph.shift(x, 1), "shift: offsets must be whole numbers, got 1 of type int"),
        (
            lambda x: mgraph.shift(x, np.array(1)),
            "shift: offsets must be whole numbers, got an array of shape () and type int64",
        ),
        (
            lambda x: mgraph.concatenate(np.array(1)),
            "concatenate: expected a list of nodes, got an array of shape () and type int64",
        ),
        (
            lambda x: mgraph.lambda_node(None, (2, 2), "float32", jnp.sin),
            "lambda_node: expected a list of nodes, got None of type NoneType",
        ),
        (
            lambda x: mgraph.scan(x, x, x),
            "scan: expected a function of a state and a slice, got ParamNode('x'",
        ),
        (
            lambda x: mgraph.scan(lambda s: (s, s), x[0], x),
            "scan: expected a function of a state and a slice, got <lambda>(s)",
        ),
        (
            lambda x: mgraph.scan(lambda s, v, w: (s, s), x[0], x),
            "scan: expected a function of a state and a slice, got <lambda>(s, v, w)",
        ),
    ],
)
def test_one_in_the_place_of_several_is_told(graph: ExpressionGraph, call: Any, message: str) -> None:
    with pytest.raises(MGraphError, match=re.escape(message) + HERE):
        call(graph.param("x", (2, 2)))


def test_one_slice_and_one_axis_stand_for_a_list(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2, 2), inits.zeros())
    assert mgraph.replace_slice(x, 1, 3) is not None
    assert mgraph.dropout(x, 0.5, axes=1).children[1].shape == (1, 2)


def test_slices_are_of_whole_numbers(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2, 2))
    for positions in (slice("a", None), slice(0.5, 2), slice(0, x), slice(0, 2, 1.5)):
        with pytest.raises(ShapeError, match="a slice takes whole numbers, got"):
            x[positions]
    with pytest.raises(ShapeError, match="a slice takes whole numbers, got"):
        jax.jit(lambda n: x[n:2].shape)(1)


@pytest.mark.parametrize("sizes", [np.array(4), np.ones((2, 2)), (2, 2.0)])
def test_shapes_are_of_whole_numbers(graph: ExpressionGraph, sizes: Any) -> None:
    x = graph.param("x", (2, 2))
    with pytest.raises(ShapeError, match=r"expected a shape such as \(2, 3\), got"):
        mgraph.reshape(x, sizes)
    with pytest.raises(ShapeError, match=r"expected a shape such as \(2, 3\), got"):
        jax.jit(lambda n: mgraph.reshape(x, (n, 2)).shape)(2)


def test_a_random_key_is_no_array(graph: ExpressionGraph) -> None:
    with pytest.raises(ArgumentError, match=r"inits\.from_vector takes an array, got an array of .*key<fry>"):
        inits.from_vector(jax.random.key(0))
    with pytest.raises(ElementTypeError, match="expected an element type .*, got Array"):
        graph.constant((2,), None, jax.random.key(0))


def test_what_is_given_in_the_place_of_something_else_is_told(graph: ExpressionGraph) -> None:
    x, i = graph.param("x", (2, 2)), graph.input("i", (2, 2))
    f = graph.function(x * i, [i])
    partial = graph.partial_function(lambda x: x * 2, {"x": (-1, 2)})
    masked = np.ma.masked_array(np.eye(2, dtype=np.float32), np.eye(2))
    for call, message in (
        (lambda: mgraph.Adam(0.1).update(x), r"expected update\(graph\), got ParamNode"),
        (lambda: mgraph.optimizer_from_options("adam"), "expected options, .*, got 'adam'"),
        (lambda: f.pure(np.ones((2, 2))), "pure expects a dictionary of parameters first, got an array"),
        (lambda: f(jax.ShapeDtypeStruct((2, 2), np.float32)), "input 'i' takes an array, got ShapeDtypeStr"),
        (lambda: mgraph.compiled(None), "compiled expects a plan, got None"),
        (lambda: mgraph.create_loggers(log=3), "expected the path of a file, got an int"),
        (lambda: f.save(None), "expected the path of a file, got a NoneType"),
        (lambda: f.save(b"f"), "expected the path of a file, got a bytes"),
        (lambda: mgraph.load_function(None), "expected the path of a file, got a NoneType"),
        (lambda: graph.partial_function(f, [(-1, 2)]), r"argument: shape, .* and \[\(-1, 2\)\] of type list"),
        (lambda: f.save("f", platforms=5), "expected a list of platforms of cpu, .*, got 5"),
        (lambda: f.save("f", platforms="cpu"), "expected a list of platforms of cpu, .*, got 'cpu'"),
        (lambda: f.replace_parameter(["x"], 1), r"the function has no parameter \['x'\]; it has \['x'\]"),
        (lambda: graph.assign([x], [i]), r"expected assign\(parameter, node\) or .*, got \[ParamNode"),
        (lambda: graph.save("f.npz", meta=5), "the meta of a model must be a string, got 5"),
        (lambda: (x * 2).child(1), "expected the number of a child, of which this .* node has 1, got 1"),
        (lambda: x.child("a"), "expected the number of a child, of which this param node has 0, got 'a'"),
        (lambda: partial.specialize(5), "specialize expects shapes by the names of inputs, got 5"),
        (lambda: graph.backward(clip_value="1"), "clip_value must be a number, got '1'"),
        (lambda: graph.params().add(0), "expected a parameter, from graph.param, got 0"),
        (lambda: ExpressionGraph().params().add(x), "parameter 'x' belongs to another graph"),
        (lambda: x.debug(3), "the message of debug must be a string, got 3"),
        (lambda: graph.value_of(graph), "value_of: the number of a node must be a whole number, got Expr"),
        (lambda: graph.gradient_of(99), "gradient_of: expected the number of one of . nodes, got 99"),
        (lambda: x.set_name(np.ones(2)), "the name of a node must be a string, got an array"),
        (lambda: f(mgraph.Type.float32), "input 'i' takes an array, got <Type.float32"),
        (lambda: f(np.float32), "input 'i' takes an array, got <class 'numpy.float32'>"),
        (lambda: f(masked), r"input 'i' takes an array, got a masked array of shape \(2, 2\)"),
        (lambda: x.set_value(masked), "parameter 'x' takes an array, got a masked array"),
        (lambda: inits.from_tensor(masked), "inits.from_tensor takes an array, got a masked array"),
        (lambda: partial.pure({}, 5), r"expected the inputs \['x'\] as a list or by name, got 5"),
        (lambda: graph.optimize(np.array(1)), "expects a list of rules, got array"),
        (lambda: graph.html(clusters={0: x}), "expected clusters by the ids of nodes"),
        (lambda: graph.load({"x": jax.random.key(0)}), "item 'x' takes an array, got an array of shape"),
        (lambda: mgraph.optimizer_from_options({1: 2}), "the name of an option must be a string, got 1"),
        (lambda: mgraph.optimizer_from_options({"optimizer": ["adam"]}), r"expected an .*, got \['adam'\]"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()
    assert [1] not in graph.params() and graph.params()["x"] is x
    for wrong in (4, [[1, 2], [3, 4]]):
        with pytest.raises(ShapeError, match="indices: expected a vector of indices, got" + HERE):
            graph.indices(wrong)


def test_a_vector_that_the_default_initializer_cannot_fill_is_named(graph: ExpressionGraph) -> None:
    b = graph.param("b", (3,))
    for fill in (b.val, lambda: graph.constant((3,), inits.glorot_normal())):
        with pytest.raises(ShapeError, match=r"(parameter 'b'|constant): a Glorot .* shape \(3,\);.*" + HERE):
            fill()
    b.set_value([1, 2, 3])
    assert b.val().tolist() == [1, 2, 3]


def test_pure_checks_its_parameters(graph: ExpressionGraph) -> None:
    w, b = graph.param("w", (2, 2)), graph.param("b", (1, 2), inits.zeros())
    x = graph.input("x", (3, 2))
    pure = graph.function(mgraph.affine(x, w, b), [x]).pure
    params, batch = graph.params().vals(), np.ones((3, 2), np.float32)
    assert pure(params | {"not asked for": 1}, [batch]).shape == (3, 2)
    with pytest.raises(GraphError, match="missing parameters: b"):
        pure({"w": params["w"]}, [batch])
    with pytest.raises(ShapeError, match=r"parameter 'w' has shape \(2, 2\), got \(2,\)"):
        pure(params | {"w": params["w"][0]}, [batch])
    for type_ in (jnp.bfloat16, jnp.int32):
        with pytest.raises(
            ElementTypeError, match=rf"parameter 'w' has element type float32, got {jnp.dtype(type_)}"
        ):
            jax.grad(lambda p: jnp.sum(pure(p, [batch]).astype(float)), allow_int=True)(
                params | {"w": params["w"].astype(type_)}
            )
    with pytest.raises(mgraph.ArgumentError, match="parameter 'w' takes an array, got a param node"):
        pure(params | {"w": w}, [batch])
    with pytest.raises(mgraph.ArgumentError, match="parameter 'w' takes an array, got an affine node"):
        pure(params | {"w": mgraph.affine(x, w, b)}, [batch])


# -- axes without elements


def test_a_sum_of_exponentials_of_nothing(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2, 0), inits.zeros())
    node = mgraph.logsumexp(x, 1)
    graph.backprop()
    assert node.val().tolist() == [[-np.inf], [-np.inf]] and x.grad().shape == (2, 0)


@pytest.mark.parametrize(
    "cls", [c for c in own_operators() if c.has_rule and not c.composite], ids=lambda c: c.__name__
)
@pytest.mark.sampled(every=4)
def test_what_can_be_recorded_of_empty_nodes_has_a_gradient(cls: Any) -> None:
    """An operator refuses an axis without elements when it is recorded, or its rule can handle it."""
    for case in cls.cases:
        arrays = case.values()
        for size in sorted({n for a in arrays for n in a.shape if n > 1}):
            graph, children = ExpressionGraph(), []
            for i, array in enumerate(arrays):
                empty = np.zeros([0 if n == size else n for n in array.shape], array.dtype)
                init = inits.from_tensor(empty)
                if array.dtype == np.float64:
                    children.append(graph.param(f"x{i}", empty.shape, init))
                else:
                    children.append(graph.constant(empty.shape, init, array.dtype))
            try:
                node = (case.through or cls)(*children, **dict(case.fields))
            except mgraph.MGraphError:
                continue
            top = node if not isinstance(node.spec, tuple) else mgraph.get(node, 0)
            function = graph.function(top, children)
            with jax.enable_x64(True):
                jax.eval_shape(
                    jax.grad(lambda v, f=function: jnp.sum(f.pure({}, v)), allow_int=True),
                    [np.zeros(c.shape, c.value_type.dtype) for c in children],
                )


def test_a_text_with_half_a_surrogate_pair_is_refused(graph: ExpressionGraph, tmp_path: Path) -> None:
    with pytest.raises(ElementTypeError, match="expected an element type"):
        graph.zeros((2,), "\ud800")
    graph.param("x", (2, 2))
    with pytest.raises(mgraph.ModelFileError, match="model.yml: expected a text, got half a surrogate"):
        graph.save(tmp_path / "model.npz", meta="\ud800")


def test_only_nodes_are_compared(graph: ExpressionGraph) -> None:
    x = graph.ones((2,))
    assert x.equal(x) and not x.equal(mgraph.sin(x))
    with pytest.raises(ElementTypeError, match="equal: expected a node, got 1j" + HERE):
        x.equal(1j)  # type: ignore[arg-type]


def test_a_value_that_a_parameter_cannot_hold_is_told(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2,), inits.ones())
    w.check_value([1, 2])
    with pytest.raises(ElementTypeError, match="parameter 'w' holds float32, got a value of object"):
        w.check_value([None, None])
