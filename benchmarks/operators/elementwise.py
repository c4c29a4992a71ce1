"""Twins of the operators that work element by element, and of those on the graph itself."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp

import mgraph
from mgraph.cases import Case

from .twin import Twin

X = (64, 64, 256)
"""Sentences, words, features."""
ROW = (256,)

_BOTH = Case(X, X)
_POSITIVE = Case(X, X, domain="positive")


def _number(comparison: Any) -> Any:
    return lambda a, b: comparison(a, b).astype(a.dtype)


PYTHON = [
    Twin("a + b", _BOTH, operator.add, operator.add),
    Twin("a + b", Case(X, ROW), operator.add, operator.add, "broadcast"),
    Twin("a - b", _BOTH, operator.sub, operator.sub),
    Twin("a * b", _BOTH, operator.mul, operator.mul),
    Twin("a * b", Case(X, (64, 64, 1)), operator.mul, operator.mul, "broadcast"),
    Twin("a / b", _POSITIVE, operator.truediv, operator.truediv),
    Twin("a ** b", Case(X), lambda x: x**3, lambda x: x**3),
    Twin("a @ b", Case((1024, 256), (256, 256)), operator.matmul, operator.matmul),
    Twin("-x", Case(X), operator.neg, operator.neg),
    Twin("abs(x)", Case(X), abs, abs),
    Twin("a < b", _BOTH, operator.lt, _number(operator.lt), gradient=False),
    Twin("a <= b", _BOTH, operator.le, _number(operator.le), gradient=False),
    Twin("a > b", _BOTH, operator.gt, _number(operator.gt), gradient=False),
    Twin("a >= b", _BOTH, operator.ge, _number(operator.ge), gradient=False),
    Twin("x[index]", Case(X), lambda x: x[3, 1:-1], lambda x: x[3, 1:-1]),
]

COMPARISONS = [
    Twin(name, _BOTH, getattr(mgraph, name), _number(getattr(operator, name)), gradient=False)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
]

_MASKS = Case(X, X, domain="mask")

LOGIC = [
    Twin(f"logical_{name}", _MASKS, getattr(mgraph, f"logical_{name}"), _number(function), gradient=False)
    for name, function in (("and", jnp.logical_and), ("or", jnp.logical_or), ("xor", jnp.logical_xor))
] + [
    Twin(
        "logical_not",
        Case(X, domain="mask"),
        mgraph.logical_not,
        lambda x: jnp.logical_not(x).astype(x.dtype),
        gradient=False,
    )
]

ARITHMETIC = [
    Twin("plus", _BOTH, mgraph.plus, jnp.add),
    Twin("logaddexp", _BOTH, mgraph.logaddexp, jnp.logaddexp),
    Twin("maximum", _BOTH, mgraph.maximum, jnp.maximum),
    Twin("minimum", _BOTH, mgraph.minimum, jnp.minimum),
    Twin("pow", _POSITIVE, mgraph.pow, jnp.power),
]

FUNCTIONS = [
    Twin("abs", Case(X), mgraph.abs, jnp.abs),
    Twin("clip", Case(X), lambda x: mgraph.clip(x, 0.5), lambda x: jnp.clip(x, -0.5, 0.5)),
    Twin("cos", Case(X), mgraph.cos, jnp.cos),
    Twin("exp", Case(X), mgraph.exp, jnp.exp),
    Twin("gelu", Case(X), mgraph.gelu, lambda x: jax.nn.gelu(x, approximate=False)),
    Twin("leakyrelu", Case(X), mgraph.leakyrelu, jax.nn.leaky_relu),
    Twin("log", Case(X, domain="positive"), mgraph.log, jnp.log),
    Twin("prelu", Case(X), lambda x: mgraph.prelu(x, 0.2), lambda x: jax.nn.leaky_relu(x, 0.2)),
    Twin("relu", Case(X), mgraph.relu, jax.nn.relu),
    Twin("sigmoid", Case(X), mgraph.sigmoid, jax.nn.sigmoid),
    Twin("sin", Case(X), mgraph.sin, jnp.sin),
    Twin("sqrt", Case(X, domain="positive"), mgraph.sqrt, jnp.sqrt),
    Twin("square", Case(X), mgraph.square, jnp.square),
    Twin("swish", Case(X), mgraph.swish, jax.nn.swish),
    Twin("tan", Case(X, domain="unit"), mgraph.tan, jnp.tan),
    Twin("tanh", Case(X), mgraph.tanh, jnp.tanh),
    Twin("tanh", Case(X, X, ROW), mgraph.tanh, lambda a, b, c: jnp.tanh(a + b + c), "of a sum"),
]


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    return x


_clipped.defvjp(lambda x: (x, None), lambda _, adj: (jnp.clip(adj, -0.5, 0.5),))


def _gate(a: Any, b: Any) -> Any:
    return jnp.tanh(a) * b


def _product(a: mgraph.Node, b: mgraph.Node) -> mgraph.Node:
    return mgraph.lambda_node(
        [a, b], a.shape, "float32", lambda a, b: 2 * a * b, lambda adj, y, a, b: (2 * adj * b, 2 * adj * a)
    )


def _dropped(x: Any, key: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)


STRUCTURE = [
    Twin("cast", Case(X), lambda x: mgraph.cast(x, "bfloat16"), lambda x: x.astype(jnp.bfloat16)),
    Twin("clip_gradient", Case(X), lambda x: mgraph.clip_gradient(x, 0.5), _clipped),
    Twin("stop_gradient", Case(X), mgraph.stop_gradient, jax.lax.stop_gradient, gradient=False),
    Twin("lambda_node", _BOTH, _product, lambda a, b: 2 * a * b),
    Twin("map", _BOTH, lambda a, b: mgraph.map(_gate, a, b), _gate),
    Twin("dropout", Case(X), lambda x: mgraph.dropout(x, 0.1), _dropped, random=True),
    Twin(
        "dropout_relu_inplace",
        Case(X),
        lambda x: mgraph.dropout_relu_inplace(x, 0.1),
        lambda x, key: jax.nn.relu(_dropped(x, key)),
        random=True,
    ),
]

TWINS = [*PYTHON, *COMPARISONS, *LOGIC, *ARITHMETIC, *FUNCTIONS, *STRUCTURE]
