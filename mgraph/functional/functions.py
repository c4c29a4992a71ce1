"""The functions for functors: they take placeholders, ``cos(_2)``, and also arrays, ``cos(x)``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..specs import is_real
from .functors import binary, function, unary

tanh = unary("tanh", jnp.tanh, "The hyperbolic tangent.")
sin = unary("sin", jnp.sin, "The sine; x in radians.")
cos = unary("cos", jnp.cos, "The cosine; x in radians.")
tan = unary("tan", jnp.tan, "The tangent; x in radians.")
log = unary("log", jnp.log, "The natural logarithm.")
exp = unary("exp", jnp.exp, "``e`` to the power of x.")
abs = unary("abs", jnp.abs, "``|x|``.")
sqrt = unary("sqrt", jnp.sqrt, "The square root.")
sgn = unary("sgn", jnp.sign, "-1, 0 or 1: the sign of x.")
erf = unary(
    "erf", jax.scipy.special.erf, "The error function ``2 / sqrt(pi) * integral of exp(-t^2) from 0 to x``."
)
floor = unary("floor", jnp.floor, "The largest whole number that is not above x.")
ceil = unary("ceil", jnp.ceil, "The smallest whole number that is not below x.")
sigmoid = unary("sigmoid", jax.nn.sigmoid, "``1 / (1 + exp(-x))``.")
logaddexp = binary("logaddexp", jnp.logaddexp, "``log(exp(x) + exp(y))`` without overflow.")


@function
def sqr(x: Any) -> Any:
    """``x * x``."""
    return jnp.multiply(x, x)


@function
def round(x: Any) -> Any:
    """The nearest whole number; halves round away from zero, as in C, not to even."""
    x = jnp.asarray(x)
    return jax.lax.round(x) if is_real(x) else x


@function
def max(x: Any, y: Any) -> Any:
    """``y`` where ``x < y``, else ``x``."""
    return jnp.where(jnp.less(x, y), y, x)


@function
def min(x: Any, y: Any) -> Any:
    """``x`` where ``x < y``, else ``y``."""
    return jnp.where(jnp.less(x, y), x, y)


@function
def if_then_else(condition: Any, x: Any, y: Any) -> Any:
    """``x`` where the condition is not 0, else ``y``."""
    return jnp.where(jnp.not_equal(condition, 0), x, y)


@function
def clip(x: Any, c: Any) -> Any:
    """``x`` clipped to the range from ``-c`` to ``c``."""
    return jnp.where(jnp.abs(x) >= c, jnp.sign(x) * c, x)


@function
def bump(x: Any, c: Any) -> Any:
    """The derivative of ``clip``: 0 where ``|x| >= c``, else 1."""
    return jnp.where(jnp.abs(x) >= c, 0, jnp.ones_like(x))


@function
def relu(x: Any) -> Any:
    """``x`` where ``x > 0``, else 0."""
    return jnp.where(jnp.greater(x, 0), x, jnp.zeros_like(x))


@function
def relu_back(x: Any) -> Any:
    """The derivative of ``relu``: 1 where ``x > 0``, else 0."""
    return jnp.where(jnp.greater(x, 0), jnp.ones_like(x), 0)


@function
def prelu(x: Any, alpha: Any) -> Any:
    """``x`` where ``x > 0``, else ``alpha * x``."""
    return jnp.where(jnp.greater(x, 0), x, jnp.multiply(x, alpha))


@function
def prelu_back(x: Any, alpha: Any) -> Any:
    """The derivative of ``prelu`` with respect to x: 1 where ``x > 0``, else ``alpha``."""
    return jnp.where(jnp.greater(x, 0), jnp.ones_like(x), alpha)


ReLU, ReLUback, PReLU, PReLUback = relu, relu_back, prelu, prelu_back
Sigma = sigmoid
