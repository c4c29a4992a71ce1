"""Numbers that a graph is built with are arguments of its programs: one compilation serves all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mgraph
from mgraph import ArgumentError, ExpressionGraph, Node, ShapeError, UnaryNodeOp, inits, scan
from mgraph.gradcheck.survey import own_operators
from mgraph.operators import OPEN


def smoothed(x: Node, alpha: float) -> Node:
    return mgraph.cross_entropy(x, x.graph.indices([1, 0, 3]), alpha)


def looped(x: Node, c: float) -> Node:
    last, _ = scan(lambda s, x: (mgraph.tanh(s * c) + x * 0.5, ()), x, mgraph.reshape(x, (1, *x.shape)))
    return last


def nested(x: Node, c: float) -> Node:
    def outer(s: Node, x: Node) -> tuple[Node, tuple[()]]:
        return looped(s, c) * (c + 1.5) + x, ()

    return scan(outer, x, mgraph.reshape(x, (1, *x.shape)))[0]


BUILT_WITH: dict[str, Callable[[Node, float], Node]] = {
    "sum": lambda x, c: x + c,
    "product": lambda x, c: c * x,
    "quotient": lambda x, c: x / c,
    "power": lambda x, c: (x * x) ** c,
    "temperature": lambda x, c: mgraph.softmax(x / c),
    "dot": lambda x, c: mgraph.dot(x, x, trans_b=True, scale=c),
    "affine": lambda x, c: mgraph.affine(x, x, x.graph.ones((1, 3)), trans_b=True, scale=c),
    "bdot": lambda x, c: mgraph.bdot(x, x, trans_b=True, scale=c),
    "clip": mgraph.clip,
    "gradient": mgraph.clip_gradient,
    "prelu": mgraph.prelu,
    "sqrt": lambda x, c: mgraph.sqrt(x * x, c),
    "layer norm": lambda x, c: mgraph.layer_norm(x, eps=c),
    "rms norm": lambda x, c: mgraph.rms_norm(x, eps=c),
    "smoothing": smoothed,
    "shift": lambda x, c: mgraph.shift(x, (0, 1), c),
    "loop": looped,
    "loops in loops": nested,
}


def run(build: Callable[[Node, float], Node], c: float, *, parts: bool = False) -> tuple[Any, Any]:
    graph = ExpressionGraph()
    x = graph.param("x", (3, 4), inits.normal())
    inner = build(x, c)
    top = mgraph.sum(mgraph.flatten((mgraph.checkpoint(inner) if parts else inner) * inner))
    graph.set_checkpointing(parts)
    graph.backprop()
    return np.asarray(top.val()), np.asarray(x.grad())


def directly(build: Callable[[Node, float], Node], c: float) -> tuple[Any, Any]:
    """The value and the gradient when the number is compiled into the program."""
    graph = ExpressionGraph()
    x = graph.param("x", (3, 4), inits.normal())
    inner = build(x, c)
    pure = graph.function(mgraph.sum(mgraph.flatten(inner * inner)), []).pure
    value, gradients = jax.jit(jax.value_and_grad(lambda p: pure(p)[0]))(graph.params().vals())
    return value, gradients["x"]


@pytest.mark.parametrize("name", BUILT_WITH)
@pytest.mark.sampled(every=3)
def test_other_numbers_compile_nothing_and_are_right(name: str) -> None:
    build = BUILT_WITH[name]
    run(build, 0.61)
    before = mgraph.compile_stats()
    found = {c: run(build, c) for c in (0.3, 0.89)}
    assert (mgraph.compile_stats() - before).misses == 0
    for c, (value, gradient) in found.items():
        expected, slopes = directly(build, c)
        np.testing.assert_allclose(value.reshape(()), expected, rtol=2e-6)
        np.testing.assert_allclose(gradient, slopes, atol=2e-6 * np.abs(slopes).max())
    (a, b), (c, d) = found.values()
    assert not (np.array_equal(a, c) and np.array_equal(b, d))


def test_an_annealed_temperature_compiles_no_more_than_two_do(graph: ExpressionGraph) -> None:
    compiled = []
    for step in range(100):
        graph.clear()
        x = graph.constant((2, 5), inits.from_value(step))
        logits = mgraph.dot(x, graph.param("w", (5, 7))) / (2.0 - 0.0173 * step)
        loss = mgraph.sum(mgraph.cross_entropy(logits, graph.indices([1, 2]), 0.2 - 0.0013 * step))
        graph.forward()
        graph.backward(clip_value=1.5 - 0.01 * step)
        loss.val()
        compiled.append(mgraph.compile_stats().misses)
    assert compiled[-1] == compiled[1]


def test_checkpoints_functions_assignments_and_single_values() -> None:
    def once(c: float) -> list[Any]:
        graph = ExpressionGraph()
        x = graph.param("x", (3, 4), inits.ones())
        inner = mgraph.tanh(x * c)
        top = inner * (c + 1)
        called = graph.function(top, [])()
        graph.forward()
        graph.backward()
        found = [called, inner.val(), inner.grad(), x.grad()]
        graph.assign(x, mgraph.remove_as_root(x * c))
        return [*found, x.val(), *run(nested, c, parts=True)]

    once(0.7)
    before = mgraph.compile_stats()
    found = once(0.4)
    assert (mgraph.compile_stats() - before).misses == 0
    t = np.tanh(0.4)
    for value, expected in zip(found[:5], (1.4 * t, t, 1.4, 1.4 * 0.4 * (1 - t * t), 0.4), strict=True):
        np.testing.assert_allclose(value, np.full((3, 4), expected), rtol=1e-6)
    np.testing.assert_allclose(found[6], directly(nested, 0.4)[1], rtol=1e-5)


@pytest.mark.parametrize(
    "init",
    [lambda c: inits.dropout(c), lambda c: inits.uniform(-c, c), lambda c: inits.normal(c, 2 * c),
     lambda c: inits.bernoulli(c, 2 * c, -c)],
)  # fmt: skip
def test_rates_and_widths_of_random_nodes(init: Callable[[float], Any]) -> None:
    def drawn(c: float) -> tuple[Any, Any, Any]:
        graph = ExpressionGraph(seed=3)
        mask = graph.constant((50, 4), init(c))
        doubled = mask * 2.0
        graph.forward()
        key = jax.random.key(0)
        return np.asarray(doubled.val()), np.asarray(mask.val()), graph.function(mask, []).pure({}, [], key)

    drawn(0.6)
    before = mgraph.compile_stats()
    doubled, mask, pure = drawn(0.25)
    assert (mgraph.compile_stats() - before).misses == 0
    np.testing.assert_array_equal(doubled, 2 * mask)
    assert mask.std() == pytest.approx(np.asarray(pure).std(), rel=0.25)
    assert not np.array_equal(mask, drawn(0.6)[1])


def test_in_inference_what_depends_on_a_number_is_not_taken_from_another() -> None:
    graph = ExpressionGraph(inference=True)
    x = graph.param("x", (2,), inits.ones())
    for c in (0.5, 0.25, 0.5):
        graph.clear()
        top = mgraph.exp(x * c) + graph.ones((2,))
        graph.forward()
        np.testing.assert_allclose(top.val(), 1 + np.exp([c, c]), rtol=1e-6)


@pytest.mark.parametrize("c", [math.nan, math.inf, -math.inf, -0.0, 1e300, 1e-300, 5e-324, 0.0])
@pytest.mark.parametrize("type_", ["float32", "float64", "bfloat16", "float16"])
def test_numbers_that_are_none_or_large_or_tiny_stay_what_they_are(c: float, type_: str) -> None:
    graph = ExpressionGraph()
    x = graph.param("x", (2,), inits.from_vector([1.0, -2.0]), type_)
    top = x * c
    graph.forward()
    with jax.enable_x64(type_ == "float64"), np.errstate(over="ignore", invalid="ignore"):
        expected = jnp.asarray([1.0, -2.0], type_) * c
    assert top.val().dtype == type_
    np.testing.assert_array_equal(np.asarray(top.val(), float), np.asarray(expected, float))
    np.testing.assert_array_equal(np.signbit(top.val()), np.signbit(expected))


def test_whole_numbers_stay_whole(graph: ExpressionGraph) -> None:
    x = graph.constant((3,), inits.from_vector([1, 2, 3]), "uint32")
    top = x * (2**31) + (2**32 - 2) - 5
    graph.forward()
    assert top.val().dtype == np.uint32 and top.val().tolist() == [2**31 - 7, 2**32 - 7, 2**31 - 7]
    power = graph.param("p", (2,), inits.from_value(-2.0)) ** 3
    graph.forward()
    assert power.val().tolist() == [-8, -8]


def test_equal_numbers_are_one_node_and_others_are_not(graph: ExpressionGraph) -> None:
    x = graph.ones((2,))
    assert x * 0.3 is x * 0.3 and x * 0.3 is not x * 0.30000001
    assert mgraph.sqrt(x, 0.0) is mgraph.sqrt(x) and mgraph.sqrt(x, -0.0) is not mgraph.sqrt(x)
    assert x * math.nan is x * math.nan
    assert (x * 0.3).c == 0.3 and repr((x * 0.3).operator) == "ScalarMultNodeOp(c=0.3)"
    assert repr((x * 0.3).operator.generic[0]) == "ScalarMultNodeOp(c=any number)"


def test_what_an_operator_leaves_at_its_default_is_compiled_in(graph: ExpressionGraph) -> None:
    x = graph.ones((2, 2))
    for node in (
        mgraph.dot(x, x),
        mgraph.swish(x),
        mgraph.sqrt(x),
        mgraph.layer_norm(x),
        mgraph.shift(x, (0, 1)),
    ):
        assert node.operator.generic is None
    assert mgraph.dot(x, x, scale=0.5).operator.generic[1] == (0.5,)


class Powered(UnaryNodeOp):
    """A user's own operator whose number is an argument."""

    type = "powered"
    exponent: float = 2.0
    runtime_fields = ("exponent",)

    def forward_ops(self, x):
        return x**self.exponent

    def backward_ops(self, adj, val, x):
        return (adj * self.exponent * x ** (self.exponent - 1),)


@given(st.floats(0.5, 3.0), st.sampled_from(["float32", "bfloat16", "float64"]))
def test_a_users_own_operator(exponent: float, type_: str) -> None:
    graph = ExpressionGraph()
    x = graph.param("x", (3,), inits.from_vector([0.5, 1.0, 1.5]), type_)
    top = Powered(x, exponent=exponent)
    graph.backprop()
    base = np.array([0.5, 1.0, 1.5])
    tolerance = {"float32": 1e-5, "bfloat16": 3e-2, "float64": 1e-12}[type_]
    assert top.val().dtype == x.grad().dtype == type_
    np.testing.assert_allclose(np.asarray(top.val(), float), base**exponent, rtol=tolerance)
    np.testing.assert_allclose(np.asarray(x.grad(), float), exponent * base ** (exponent - 1), rtol=tolerance)


def test_the_checker_and_numbers() -> None:
    assert mgraph.check_gradients(
        Powered, (3,), values=[np.array([0.5, 1.0, 2.0])], fields={"exponent": 1.7}
    ).ok


class Asking(Powered):
    """Its forward asks which number it is."""

    type = "asking"

    def forward_ops(self, x):
        return x**self.exponent if self.exponent > 1 else x


class AskingLate(Asking):
    """Gives its shape without its forward."""

    type = "asking late"

    def new_spec(self, x):
        return x


class AskingBackward(Powered):
    type = "asking backward"

    def backward_ops(self, adj, val, x):
        return (adj * self.exponent * (x ** (self.exponent - 1) if self.exponent > 1 else 1),)


class Counting(Powered):
    type = "counting"

    def forward_ops(self, x):
        return sum(x for _ in range(self.exponent))


ASKS = r"asks .*not the numbers of runtime_fields \['exponent'\].*\((Tracer|TypeError).*_numbers.py:\d+\)"


def test_asking_for_a_number_is_explained_where_the_node_is_made(graph: ExpressionGraph) -> None:
    x = graph.param("x", (3,), inits.ones())
    with pytest.raises(
        ShapeError, match=rf"Asking \(asking\): forward_ops {ASKS}\n.*'x'.*\n  at .*_numbers.py"
    ):
        Asking(x, exponent=1.7)
    with pytest.raises(ShapeError, match=rf"Counting \(counting\): forward_ops {ASKS}"):
        Counting(x, exponent=1.7)
    node = AskingLate(x, exponent=1.7)
    graph.forward()
    with pytest.raises(
        ArgumentError, match=rf"AskingLate.forward_ops {ASKS}\n  .* float32\[3\]\n  at .*_numbers"
    ):
        node.val()


@pytest.mark.parametrize("operator", [AskingLate, AskingBackward])
def test_the_checker_does_not_tell_the_numbers_either(operator: type[UnaryNodeOp]) -> None:
    (check,) = mgraph.check_gradients(
        operator, values=[np.array([0.5, 1.0, 2.0])], fields={"exponent": 1.7}
    ).checks
    assert not check.objections and re.match(rf"{operator.__name__}.(for|back)ward_ops {ASKS}", check.problem)


def test_a_runtime_field_is_a_field() -> None:
    with pytest.raises(ArgumentError, match=r"Lost\.runtime_fields names no field: \['d'\]"):
        type("Lost", (UnaryNodeOp,), {"runtime_fields": ("d",)})


@pytest.mark.thorough
def test_rules_never_ask_which_number_it_is() -> None:
    """Every operator with runtime fields is traced with all of them open, forward and backward."""
    seen = set()
    for cls in own_operators():
        for case in cls.cases if cls.runtime_fields else ():
            fields = dict(case.fields) | dict.fromkeys(cls.runtime_fields, 0.37)
            graph = ExpressionGraph()
            children = [
                graph.param(f"x{i}", a.shape, inits.from_tensor(a)) if a.dtype == float
                else graph.constant(a.shape, inits.from_tensor(a), a.dtype)
                for i, a in enumerate(case.values())
            ]  # fmt: skip
            node = cls(*children, **fields)
            family = node.operator.generic[0]
            assert all(getattr(family, name) is OPEN for name in cls.runtime_fields)
            if isinstance(node.spec, tuple):
                mgraph.get(node, 0)
            graph.memory()  # traced and compiled, not run
            seen.add(cls.__name__)
    assert {"ScalarMultNodeOp", "DotNodeOp", "CrossEntropyNodeOp", "LayerNormalizationOp"} <= seen
