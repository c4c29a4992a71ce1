"""Powers. Marian has only ``pow``, which uses logarithms; ``x ** n`` computes the power directly."""

from __future__ import annotations

import math
from typing import Any, overload

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import real
from ..cases import Case, Convention
from ..errors import ArgumentError, ElementTypeError
from ..node import Node, Number, Operand
from ..places import here
from .arithmetic import mult
from .elementwise import exp, log
from .operands import FloatUnaryNodeOp, Gradients, is_number, node


class PowNodeOp(FloatUnaryNodeOp):
    """``x`` to a whole power, for any base; ``x ** n``."""

    type = "pow"
    n: int
    cases = (Case((2, 3), n=3), Case((2, 3), domain="positive", n=-2), Case((2, 3), n=0))
    conventions = (Convention([0.0], gradients=([0],), n=0),)

    def forward_ops(self, x: Array) -> Array:
        return jax.lax.integer_pow(x, self.n)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        slope = float(self.n) * jax.lax.integer_pow(x, self.n - 1) if self.n else jnp.zeros_like(x)
        return (adj * slope,)


class ScalarPowNodeOp(FloatUnaryNodeOp):
    """``x`` to the power of a number that is not whole; ``x ** 1.5``."""

    type = "scalar_pow"
    c: float
    runtime_fields = ("c",)
    cases = (Case((2, 3), domain="positive", c=1.5), Case((2, 3), domain="positive", c=-0.3))
    conventions = (
        Convention([0.0, math.inf, math.nan, -1.0], gradients=([0, math.inf, math.nan, math.nan],), c=1.5),
        Convention([0.0, math.inf], gradients=([math.inf, 0],), c=0.5),
    )

    def forward_ops(self, x: Array) -> Array:
        return jnp.power(x, self.c)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * (self.c * jnp.power(x, self.c - 1)),)


@overload
def pow(a: Node, b: Operand) -> Node: ...
@overload
def pow(a: Number, b: Node) -> Node: ...
def pow(a: Any, b: Any) -> Node:
    """``a`` to the power ``b`` as ``exp(b log(a))``; one of them may be a number.

    NaN where a base is negative, even with a whole exponent; use ``x ** n`` there. ``ArgumentError`` for a
    negative number ``a``.

    Shape: broadcast of both.
    Gradient: that of its parts: ``adj y b / a`` for ``a``, ``adj y log(a)`` for ``b``.
    Differs: Marian gives NaN, not an error, for a negative number ``a``.
    Source: Marian, ``pow``.
    """
    if not is_number(a):
        with node("pow", a).tape().all_or_nothing():
            return exp(mult(log(a), b))
    if a < 0:
        raise ArgumentError(f"pow: expected a base of at least 0, got {a}: it has no logarithm{here()}")
    if not node("pow", b).value_type.is_float:
        raise ElementTypeError(
            f'pow: expected a node of a floating point type, got {b.value_type}; cast(x, "float32"){here()}'
        )
    return exp(mult(math.log(a) if a else -math.inf, b))


def power(a: Any, b: Any) -> Node:
    """``a ** b``: for a whole number ``b`` by multiplication, with any base; for a node ``b``, ``pow(a, b)``.

    ``x ** 1`` returns ``x``.

    Shape: broadcast of both.
    Gradient: ``adj b a ** (b - 1)`` for a number ``b``, also where ``a`` is 0; else that of ``pow``.
    Source: no counterpart in Marian.
    """
    if not is_number(b):
        return pow(a, b)
    exponent = real("**", "the exponent", b)
    if not exponent.is_integer():
        return ScalarPowNodeOp(a, c=exponent)
    return a if b == 1 else PowNodeOp(a, n=int(b))
