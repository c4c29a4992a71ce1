"""Element types through values and gradients, and float64 that is float64 all the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

import mgraph
from mgraph import ElementTypeError, ExpressionGraph, NaryNodeOp, Node, UnaryNodeOp, inits
from mgraph.cases import Case
from mgraph.gradcheck.survey import own_operators
from mgraph.operators import make_operator
from mgraph.rules import RULE_SETS, evaluate


def element_types(jaxpr: Jaxpr) -> Iterator[Any]:
    """The element types of all that a program computes, including its loops and functions."""
    for equation in jaxpr.eqns:
        yield from (v.aval.dtype for v in equation.outvars if hasattr(v.aval, "dtype"))
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_program):
            if is_program(inner):
                yield from element_types(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner)


NARROW = {jnp.dtype(kind) for kind in ("float32", "float16", "bfloat16")}


def is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def narrow_types(operator: type[NaryNodeOp]) -> set[Any]:
    """Types narrower than float64 in values and gradients of an operator with float64 children."""
    found: set[Any] = set()
    for case in operator.cases:
        if case.through:
            continue
        node, values = make_operator(operator, dict(case.fields)), case.values()
        trained = tuple(v.dtype == np.float64 for v in values)
        for rule_set in RULE_SETS:
            run = partial(value_and_gradients, node, rule_set, trained)
            with jax.enable_x64(True):
                program = jax.make_jaxpr(run)(*values)
            found |= set(element_types(program.jaxpr)) & NARROW
    return found


def value_and_gradients(node: Any, rule_set: str, trained: tuple[bool, ...], *values: Any) -> Any:
    y, pull = jax.vjp(partial(evaluated, node, rule_set, trained), *values)
    return y, pull(jax.tree.map(adjoint, y))


def evaluated(node: Any, rule_set: str, trained: tuple[bool, ...], *values: Any) -> Any:
    return evaluate(node, rule_set, trained, values)


def adjoint(y: Any) -> Any:
    if jnp.issubdtype(y.dtype, jnp.floating):
        return jnp.ones_like(y)
    return np.zeros(y.shape, jax.dtypes.float0)


@pytest.mark.parametrize("operator", own_operators(), ids=lambda c: c.__name__)
@pytest.mark.sampled(every=4)
def test_float64_is_not_cut_on_the_way(operator: type[NaryNodeOp]) -> None:
    assert narrow_types(operator) == set()


@pytest.mark.parametrize("operator", own_operators(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("type_", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.sampled(every=4)
def test_types_are_never_mixed(operator: type[NaryNodeOp], type_: str) -> None:
    """Not even inside a rule: JAX's setting of strict type promotion refuses mixed types."""
    for case in operator.cases:
        if case.through:
            continue
        node = make_operator(operator, dict(case.fields))
        values = [v.astype(type_) if v.dtype == np.float64 else v for v in case.values()]
        run = partial(value_and_gradients, node, "rules", tuple(v.dtype == type_ for v in values))
        with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
            jax.make_jaxpr(run)(*values)


def test_a_cut_would_be_seen() -> None:
    class CutNodeOp(UnaryNodeOp):
        type = "cut"
        cases = (Case((2,)),)

        def forward_ops(self, x: Any) -> Any:
            return 2 * x

        def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
            return (jax.lax.map(lambda a: 2 * a.astype(jnp.float32), adj).astype(x.dtype),)

    assert narrow_types(CutNodeOp) == {jnp.dtype("float32")}


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def along(function: Callable[..., Any]) -> Callable[[np.ndarray], Any]:
    return lambda x: function(x, axis=1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def normed(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-9)


X = np.random.default_rng(5).normal(size=(3, 4))


P = np.abs(X) + 0.5


MASK = np.array([[1.0, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]])


LABELS = np.array([3, 0, 2], np.uint32)


NUMPY: dict[str, Any] = {
    "x + y": X + P,
    "x - 2": X - 2,
    "x * y": X * P,
    "x / y": X / P,
    "x / 3": X / 3,
    "y ** 1.5": P**1.5,
    "x ** 3": X**3,
    "x @ transpose(y)": X @ P.T,
    "maximum(x, y)": np.maximum(X, P),
    "minimum(x, 0.1)": np.minimum(X, 0.1),
    "logaddexp(x, y)": np.logaddexp(X, P),
    "exp(x)": np.exp(X),
    "log(y)": np.log(P),
    "sqrt(y, 0.1)": np.sqrt(P + 0.1),
    "sin(x)": np.sin(X),
    "cos(x)": np.cos(X),
    "tan(x)": np.tan(X),
    "tanh(x)": np.tanh(X),
    "sigmoid(x)": sigmoid(X),
    "swish(x)": X * sigmoid(X),
    "gelu(x)": X * (1 + erf(X / math.sqrt(2))) / 2,
    "prelu(x, 0.2)": np.where(X > 0, X, 0.2 * X),
    "sum(x, 1)": along(np.sum)(X),
    "mean(x, 1)": along(np.mean)(X),
    "std(x, 1)": along(np.std)(X),
    "var(x, 1)": along(np.var)(X),
    "prod(x, 1)": along(np.prod)(X),
    "max(x, 1)": along(np.max)(X),
    "logsumexp(x, 1)": np.log(np.exp(X).sum(1, keepdims=True)),
    "scalar_product(x, y, 1)": along(np.sum)(X * P),
    "weighted_average(x, y, 1)": along(np.sum)(X * P) / along(np.sum)(P),
    "cumsum(x, 1)": np.cumsum(X, 1),
    "logcumsumexp(x, 1)": np.log(np.cumsum(np.exp(X), 1)),
    "softmax(x)": np.exp(log_softmax(X)),
    "softmax(x, mask)": MASK * np.exp(X) / (MASK * np.exp(X)).sum(-1, keepdims=True),
    "logsoftmax(x)": log_softmax(X),
    "cross_entropy(x, labels, 0.1)": -0.9 * np.take_along_axis(log_softmax(X), LABELS[:, None], 1)
    - 0.1 * log_softmax(X).mean(1, keepdims=True),
    "softmax_cross_entropy(x, y)": -(P * log_softmax(X)).sum(1, keepdims=True),
    "unlikelihood(x, labels)": -np.log(1 - np.exp(np.take_along_axis(log_softmax(X), LABELS[:, None], 1))),
    "layer_norm(x, gain, gain)": normed(X) * P[:1] + P[:1],
    "rms_norm(x, gain, gain)": X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-9) * P[:1] + P[:1],
    "dot(x, y, False, True, 0.5)": 0.5 * X @ P.T,
    "affine(x, transpose(y), bias)": X @ P.T + P[:1, :3],
    "bdot(x, y, True)": X.T @ P,
    "bdot_legacy(x, y, True)": X.T @ P,
    "highway(x, y, x)": sigmoid(X) * X + (1 - sigmoid(X)) * P,
    "transpose(x)": X.T,
    "slice(x, 1, Slice(0, 2))": X[:, :2],
    "index_select(x, 1, labels)": X[:, LABELS],
    "sort(x, 1)[0]": -np.sort(-X, 1),
    "sparsemax(x / 8)": (X - X.mean(-1, keepdims=True)) / 8 + 0.25,
}


KINDS = ("float64", "float32", "float16", "bfloat16")


LOSSES = ("cross_entropy", "softmax_cross_entropy", "unlikelihood")


def recorded(kind: str) -> tuple[ExpressionGraph, dict[str, Node]]:
    """The calls on parameters of one element type."""
    graph = ExpressionGraph()
    names: dict[str, Any] = {"labels": graph.indices(LABELS)}
    for name, array in {"x": X, "y": P, "gain": P[:1], "bias": P[:1, :3]}.items():
        names[name] = graph.param(name, array.shape, inits.from_tensor(array), kind)
    names["mask"] = graph.constant(MASK.shape, inits.from_tensor(MASK), kind)
    return graph, {call: eval(call, vars(mgraph) | names) for call in NUMPY}


def test_float64_is_as_exact_as_numpys() -> None:
    graph, nodes = recorded("float64")
    graph.forward()
    for call, expected in NUMPY.items():
        found = np.asarray(nodes[call].val())
        assert found.dtype == np.float64, call
        np.testing.assert_allclose(found, expected, 1e-12, 1e-12, err_msg=call)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled("bfloat16", "float64")
def test_functions_keep_the_element_type(kind: str) -> None:
    """Values keep it, except losses of 16-bit logits, and so do gradients."""
    graph, nodes = recorded(kind)
    wide = {call: node.value_type for call, node in nodes.items() if node.value_type != kind}
    half = kind in ("float16", "bfloat16")
    assert wide == ({c: "float32" for c in NUMPY if c.startswith(LOSSES)} if half else {})
    terms = [mgraph.cast(mgraph.sum(mgraph.flatten(node)), kind) for node in nodes.values()]
    mgraph.sum(mgraph.concatenate(terms))
    graph.backprop()
    for name, leaf in graph.params().items():
        slope = np.asarray(leaf.grad())
        assert slope.dtype == jnp.dtype(kind) and np.isfinite(slope.astype(np.float64)).all(), name


def test_float64_needs_no_global_switch(graph: ExpressionGraph) -> None:
    graph.set_default_element_type("float64")
    x = graph.param("x", (2,), inits.from_vector([0.1, 0.2]))
    y = mgraph.exp(x)
    graph.backprop()
    assert y.val().dtype == x.grad().dtype == np.float64
    np.testing.assert_allclose(x.grad(), np.exp([0.1, 0.2]), rtol=1e-15)


class Ramp(UnaryNodeOp):
    """x times numbers of JAX's default type, which follows the 64-bit switch."""

    type = "ramp"

    def forward_ops(self, x):
        return x * jnp.linspace(0, 1, x.shape[0])

    def backward_ops(self, adj, val, x):
        return (adj * jnp.linspace(0, 1, x.shape[0]),)


def test_the_users_64_bit_switch_changes_no_program() -> None:
    for switch in (True, False):
        with jax.enable_x64(switch):
            graph = ExpressionGraph()
            w = graph.param("w", (3,), inits.ones())
            y = Ramp(w)
            z = y * 2.0
            graph.backprop()
            assert {v.dtype for v in (y.val(), z.val(), w.grad(), y.grad())} == {np.dtype("float32")}
    mgraph.clear_programs()


def test_pure_functions_of_64_bits_want_the_switch(graph: ExpressionGraph) -> None:
    x = graph.input("x", (2,), "float64")
    f = graph.function(x * 2.0, [x])
    with pytest.raises(ElementTypeError, match=r"within jax.enable_x64\(True\)"):
        f.pure({}, [np.ones(2)])
    with jax.enable_x64(True):
        assert f.pure({}, [np.ones(2)]).dtype == np.float64
