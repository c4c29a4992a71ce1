"""Functors: node operators of Marian's pages ported line by line, and every function and operator."""

from __future__ import annotations

import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mgraph
from mgraph import ArgumentError, ExpressionGraph, NaryNodeOp, Node, ShapeError, UnaryNodeOp, check_gradients
from mgraph import functional as F
from mgraph.functional import Sigma, _1, _2, _3, add, aggregate, cos, element, logaddexp, max, prod, sin
from tests.helpers.leaves import constant, param

# ---------------------------------------------------------------- node operators of Marian's pages


class SinNodeOp(UnaryNodeOp):
    type = "sin"

    def forward_ops(self, x):
        return element(sin(_1), x)

    def backward_ops(self, adj, val, x):
        return (add(_1 * cos(_2), x.shape, adj, x),)


class LogitNodeOp(UnaryNodeOp):
    type = "logit"

    def forward_ops(self, x):
        return element(Sigma(_1), x)

    def backward_ops(self, adj, val, x):
        return (add(_1 * _2 * (1.0 - _2), x.shape, adj, val),)


class AffineNodeOp(NaryNodeOp):
    type = "affine"

    def forward_ops(self, a, b, bias):
        return add(_1, prod(a, b, False, False), bias)

    def backward_ops(self, adj, val, a, b, bias):
        return (
            prod(adj, b, False, True, out=a.shape),
            prod(a, adj, True, False, out=b.shape),
            add(_1, bias.shape, adj),
        )


class PlusNodeOp(NaryNodeOp):
    """The gradient of each child is summed over the axes along which it was broadcast."""

    type = "+"

    def forward_ops(self, a, b):
        return element(_1 + _2, a, b)

    def backward_ops(self, adj, val, a, b):
        return add(_1, a.shape, adj), add(_1, b.shape, adj)


PORTED = [
    (SinNodeOp, mgraph.sin, [(2, 3)]),
    (LogitNodeOp, mgraph.sigmoid, [(2, 3)]),
    (AffineNodeOp, mgraph.affine, [(2, 3), (3, 4), (1, 4)]),
    (AffineNodeOp, mgraph.affine, [(2, 5, 3), (3, 4), (1, 4)]),
    (PlusNodeOp, lambda a, b: a + b, [(2, 1, 4), (3, 1)]),
]


@pytest.mark.parametrize(("ported", "built_in", "shapes"), PORTED)
def test_ported_operators_are_the_built_in_ones(ported: Any, built_in: Any, shapes: list[Any]) -> None:
    assert check_gradients(ported, *shapes).ok
    graph = ExpressionGraph()
    random = np.random.default_rng(0)
    # Products and sums of small whole numbers are exact in whatever order XLA adds them up.
    leaves = [param(graph, random.integers(-4, 5, s), f"x{i}") for i, s in enumerate(shapes)]

    def value_and_gradients(y: Node) -> Any:
        function = graph.function(y, leaves)
        values = [leaf.leaf_value() for leaf in leaves]
        return function.pure({}, values), jax.grad(lambda v: jnp.sum(function.pure({}, v) ** 2))(values)

    found, expected = value_and_gradients(ported(*leaves)), value_and_gradients(built_in(*leaves))
    chex.assert_trees_all_equal(found, expected)


# ---------------------------------------------------------------- functors

X = np.array([-2.5, -1.0, -0.4, 0.0, 0.4, 1.0, 2.5])
P = np.abs(X) + 0.5

UNARY: dict[str, Any] = {
    "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan, "exp": np.exp, "abs": np.abs,
    "sqr": np.square, "neg": np.negative, "sgn": np.sign, "floor": np.floor, "ceil": np.ceil,
    "erf": np.vectorize(math.erf), "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "negate": lambda x: x == 0,
    "relu": lambda x: np.maximum(x, 0), "relu_back": lambda x: x > 0,
}  # fmt: skip
BINARY: dict[str, Any] = {
    "max": np.maximum, "min": np.minimum, "logaddexp": np.logaddexp,
    "eq": np.equal, "neq": np.not_equal, "gt": np.greater, "lt": np.less,
    "geq": np.greater_equal, "leq": np.less_equal, "and_": np.logical_and, "or_": np.logical_or,
    "clip": lambda x, y: np.clip(x, -np.abs(y), np.abs(y)) if (y >= 0).all() else None,
    "prelu": lambda x, y: np.where(x > 0, x, x * y), "prelu_back": lambda x, y: np.where(x > 0, 1, y),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name: str) -> None:
    apply = getattr(F, name)
    for found in (apply(X), apply(_1)(X), element(apply(_2 - _1), np.zeros(1), X)):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, UNARY[name](X), rtol=1e-6, atol=1e-6)


def test_functions_of_positive_numbers() -> None:
    np.testing.assert_allclose(F.log(_1)(P), np.log(P), rtol=1e-6)
    np.testing.assert_allclose(F.sqrt(_1)(P), np.sqrt(P), rtol=1e-6)
    np.testing.assert_allclose(F.pow(_1, _2)(P, X), P**X, rtol=1e-5)
    np.testing.assert_allclose((_1**2 + 2**_1)(P), P**2 + 2**P, rtol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name: str) -> None:
    apply = getattr(F, name)
    x, y = X, P if name == "clip" else X[[3, 1, 0, 3, 5, 4, 6]]
    for found in (apply(x, y), apply(_1, _2)(x, y), apply(_2, _1)(y, x)):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, BINARY[name](x, y), rtol=1e-6, atol=1e-6)


def test_marians_conventions() -> None:
    assert F.bump(_1, 1.0)(X).tolist() == [0, 0, 1, 1, 1, 0, 0]
    assert F.if_then_else(_1 > 0, _1, 9)(X).tolist() == F.if_then_else(X > 0, X, 9).tolist()
    assert F.if_then_else(_1, 1, 2)(X).tolist() == [1, 1, 1, 2, 1, 1, 1]
    assert F.round(np.array([-2.5, -0.5, 0.5, 1.5])).tolist() == [-3, -1, 1, 2]
    assert jax.grad(F.max(_1, _2), (0, 1))(1.0, 1.0) == (1, 0)
    assert jax.grad(F.min(_1, _2), (0, 1))(1.0, 1.0) == (0, 1)
    assert (F.ReLU, F.ReLUback, F.PReLU, F.PReLUback) == (F.relu, F.relu_back, F.prelu, F.prelu_back)
    assert F.Sigma is F.sigmoid
    keep = (_1 < 0.7) * 2 + 1
    assert keep(np.array([0.5, 0.9], np.float16)).dtype == jnp.float16


def functors() -> st.SearchStrategy[F.Functor]:
    leaves = st.sampled_from([_1, _2, _3, _1 * 0 + 2.5, _1 - 3])
    binary = st.sampled_from(
        [F.Functor.__add__, F.Functor.__sub__, F.Functor.__mul__, F.Functor.__lt__, F.Functor.__and__,
         F.Functor.__or__, F.Functor.__eq__, F.Functor.__rsub__, F.max, F.Functor.__ge__]
    )  # fmt: skip
    unary = st.sampled_from([F.Functor.__neg__, F.Functor.__invert__, F.sgn, lambda x: x * -2.0])

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.builds(lambda f, x, y: f(x, y), binary, inner, inner) | st.builds(
            lambda f, x: f(x), unary, inner
        )

    return st.recursive(leaves, extend, max_leaves=8)


@given(functors())
def test_a_functor_prints_as_what_makes_it(functor: F.Functor) -> None:
    again = eval(repr(functor), vars(F))
    assert repr(again) == repr(functor)
    arrays = [np.array([0.0, 1.0, -2.0]), np.array([1.0, 1.0, 3.0]), np.array([0.0, 2.0, 2.0])]
    np.testing.assert_array_equal(
        again(*arrays[: again.arity]), functor(*arrays[: functor.arity]), strict=True
    )


def test_functors_read_well() -> None:
    assert repr(_1 * cos(_2)) == "_1 * cos(_2)"
    assert repr(_1 - (_2 - _3) * 2) == "_1 - (_2 - _3) * 2"
    assert repr(_1 * (1 - _1) / -_2) == "_1 * (1 - _1) / -_2"
    assert repr(~(_1 > 0) & (_2 != 1) | _3) == "~(_1 > 0) & (_2 != 1) | _3"
    assert repr((_1 < _2) < _3) == "(_1 < _2) < _3"


# ---------------------------------------------------------------- tensor operators


def test_add_sums_where_the_target_is_stretched() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    assert add(_1, (3, 1), x).tolist() == x.sum((0, 2))[:, None].tolist()
    assert add(_1 * _2, (4,), x, np.ones((3, 1))).tolist() == x.sum((0, 1)).tolist()
    assert float(add(_1, (), x)) == x.sum()
    target = np.ones((1, 4))
    assert (
        add(_1 + 1, target, x[0], scale=0.5).tolist() == (1 + 0.5 * (x[0] + 1).sum(0, keepdims=True)).tolist()
    )
    assert add(_1, np.zeros((2, 4)), np.ones((2, 1))).tolist() == np.ones((2, 4)).tolist()


@pytest.mark.parametrize(
    ("agg", "initial", "reduce"),
    [
        (_1 + _2, 0.0, np.sum),
        (_1 * _2, 1.0, np.prod),
        (max(_1, _2), -math.inf, np.max),
        (F.min(_1, _2), math.inf, np.min),
        (logaddexp(_1, _2), -math.inf, np.logaddexp.reduce),
    ],
)
def test_aggregate(agg: Any, initial: float, reduce: Any) -> None:
    x = np.random.default_rng(2).uniform(0.5, 1.5, (5, 3, 4))
    for axis in (0, 1, 2):
        expected = np.expand_dims(reduce(2 * x, axis), axis)
        found = aggregate(2 * _1, initial, agg, expected.shape, x)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    whole = aggregate(_1, initial, agg, (1, 4), x)
    np.testing.assert_allclose(whole[0], reduce(reduce(x, 0), 0), rtol=1e-5)
    again = aggregate(_1, initial, agg, np.full((1, 4), 0.5), x, scale=3.0)
    np.testing.assert_allclose(again, agg(0.5, 3.0 * whole), rtol=1e-5)
    assert aggregate(_1, initial, agg, (1,), np.zeros(0)).tolist() == [initial]
    np.testing.assert_allclose(aggregate(_1, initial, agg, x, x), agg(x, x), rtol=1e-6)


def test_aggregate_has_gradients() -> None:
    x = jnp.array([[1.0, 3.0, 3.0], [0.5, 0.0, 2.0]])
    slope = jax.grad(lambda x: jnp.sum(aggregate(_1, -math.inf, max(_1, _2), (2, 1), x)))(x)
    assert slope.tolist() == [[0, 1, 0], [0, 0, 1]]
    slope = jax.grad(lambda x: jnp.sum(aggregate(_1, -math.inf, logaddexp(_1, _2), (2, 1), x)))(x)
    np.testing.assert_allclose(slope, jax.nn.softmax(x), rtol=1e-5)
    slope = jax.grad(lambda x: jnp.sum(aggregate(_1, 1.0, _1 * _2, (2, 1), x)))(x)
    assert slope.tolist() == [[9, 3, 3], [0, 1, 0]]


def test_prod() -> None:
    random = np.random.default_rng(4)
    a, b = random.standard_normal((2, 3, 4)), random.standard_normal((4, 5))
    np.testing.assert_allclose(prod(a, b), a @ b, rtol=1e-5)
    np.testing.assert_allclose(prod(a, b.T, False, True), a @ b, rtol=1e-5)
    adj = random.standard_normal((2, 3, 5))
    np.testing.assert_allclose(prod(a, adj, True), np.einsum("abk,abn->kn", a, adj), rtol=1e-4)
    c = np.ones((6, 5))
    np.testing.assert_allclose(
        prod(a, b, False, False, 2.0, 0.5, c), 2 + 0.5 * (a @ b).reshape(6, 5), rtol=1e-5
    )
    assert prod(a, b, out=(3, 2, 5)).shape == (3, 2, 5)


def test_transformations() -> None:
    def f(x: Any) -> Any:
        return add(_1 * sin(_2), (1, 3), x, x, scale=2.0)

    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(jax.jit(f)(x), f(x), rtol=1e-6)
    many = jnp.stack([x, 2 * x, -x])
    np.testing.assert_allclose(jax.vmap(f)(many)[1], f(2 * x), rtol=1e-6)
    np.testing.assert_allclose(
        jax.grad(lambda x: jnp.sum(f(x)))(x), 2 * (jnp.sin(x) + x * jnp.cos(x)), rtol=1e-5
    )


# ---------------------------------------------------------------- errors

WAVE = _1 * cos(_2)
ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: WAVE(ONES), ArgumentError, r"functor _1 \* cos\(_2\) takes 2 arrays, got 1"),
        (lambda: element(WAVE, ONES), ArgumentError, r"element: the functor _1 \* cos\(_2\) takes 2 tensors"),
        (lambda: add(_1, (3,), ONES, ONES), ArgumentError, "add: the functor _1 takes 1 tensors, got 2"),
        (lambda: element(WAVE, ONES, ONES.T), ShapeError, r"_1 \* cos\(_2\) needs .* got \(2, 3\), \(3, 2\)"),
        (lambda: add(_1, (2, 2), ONES), ShapeError, r"add: the functor _1 needs .* got \(2, 2\), \(2, 3\)"),
        (lambda: element(jnp.cos, ONES), ArgumentError, "expected a functor such as"),
        (lambda: aggregate(_1, 0, _1 + 1, (1,), ONES), ArgumentError, "expected a functor of two"),
        (lambda: cos(_1, _2), ArgumentError, "cos takes 1 operands, got 2"),
        (lambda: _1 * jnp.ones(3), ArgumentError, r"\*: a functor is made of placeholders and numbers"),
        (lambda: jnp.ones(3) * _1, ArgumentError, r"\*: a functor is made of placeholders and numbers"),
        (lambda: ONES * _1, ArgumentError, "got ndarray"),
        (lambda: _1 and _2, ArgumentError, "the functor _1 is neither true nor false"),
        (lambda: 0 < _1 < 2, ArgumentError, "neither true nor false"),
        (lambda: prod(ONES, ONES), ShapeError, r"got 3 and 2 in \(2, 3\) times \(2, 3\)"),
        (lambda: prod(ONES, ONES, True, out=(2, 3)), ShapeError, r"\(3, 3\) does not fit an out of \(2, 3\)"),
        (lambda: prod(ONES, ONES, True, beta=1.0), ArgumentError, "beta=1.0 scales out"),
        (lambda: prod(1.0, ONES), ShapeError, "expected matrices"),
    ],
)  # fmt: skip
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_nodes_are_refused() -> None:
    node = constant(ExpressionGraph(), ONES)
    for call in (lambda: cos(node), lambda: element(cos(_1), node), lambda: add(_1, node, ONES)):
        with pytest.raises(ArgumentError, match="for arrays, got a node"):
            call()
