"""The functions of functors: of placeholders, ``cos(_2)``, and just as well of arrays, ``cos(x)``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..specs import is_real
from .functors import function


@function
def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return jnp.tanh(x)


@function
def sin(x: Any) -> Any:
    """The sine; x in radians."""
    return jnp.sin(x)


@function
def cos(x: Any) -> Any:
    """The cosine; x in radians."""
    return jnp.cos(x)


@function
def tan(x: Any) -> Any:
    """The tangent; x in radians."""
    return jnp.tan(x)


@function
def log(x: Any) -> Any:
    """The natural logarithm."""
    return jnp.log(x)


@function
def exp(x: Any) -> Any:
    """``e`` to the power of x."""
    return jnp.exp(x)


@function
def abs(x: Any) -> Any:
    """``|x|``."""
    return jnp.abs(x)


@function
def sqr(x: Any) -> Any:
    """``x * x``."""
    return jnp.multiply(x, x)


@function
def sqrt(x: Any) -> Any:
    """The square root."""
    return jnp.sqrt(x)


@function
def sgn(x: Any) -> Any:
    """-1, 0 or 1: the sign of x."""
    return jnp.sign(x)


@function
def erf(x: Any) -> Any:
    """The error function ``2 / sqrt(pi) * integral of exp(-t^2) from 0 to x``."""
    return jax.scipy.special.erf(x)


@function
def round(x: Any) -> Any:
    """The nearest whole number; halves away from zero, as in C, not to the even one."""
    x = jnp.asarray(x)
    return jax.lax.round(x) if is_real(x) else x


@function
def floor(x: Any) -> Any:
    """The largest whole number that is not above x."""
    return jnp.floor(x)


@function
def ceil(x: Any) -> Any:
    """The smallest whole number that is not below x."""
    return jnp.ceil(x)


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
    """``x`` cut to between ``-c`` and ``c``."""
    return jnp.where(jnp.abs(x) >= c, jnp.sign(x) * c, x)


@function
def bump(x: Any, c: Any) -> Any:
    """The derivative of ``clip``: 0 where ``|x| >= c``, else 1."""
    return jnp.where(jnp.abs(x) >= c, 0, jnp.ones_like(x))


@function
def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``."""
    return jax.nn.sigmoid(x)


@function
def logaddexp(x: Any, y: Any) -> Any:
    """``log(exp(x) + exp(y))`` without overflow."""
    return jnp.logaddexp(x, y)


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
    """The derivative of ``prelu`` by x: 1 where ``x > 0``, else ``alpha``."""
    return jnp.where(jnp.greater(x, 0), jnp.ones_like(x), alpha)


ReLU, ReLUback, PReLU, PReLUback = relu, relu_back, prelu, prelu_back
Sigma = sigmoid
