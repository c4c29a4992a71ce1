"""Arithmetic: nodes with nodes, and nodes with numbers.

The functions ``plus``, ``minus``, ``mult`` and ``div`` are what Python's operators on nodes call.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..cases import Case
from ..node import NaryNodeOp, Node, UnaryNodeOp
from .elementwise import exp, log
from .operands import (
    FloatNodeOp,
    FloatUnaryNodeOp,
    Gradients,
    constant_for,
    is_number,
    node,
    number_for,
    scalar,
)

_BROADCASTS = (
    Case((2, 3), (2, 3)),
    Case((4, 2, 3), (3,)),
    Case((2, 1), (1, 3)),
)


class ElementBinaryNodeOp(NaryNodeOp):
    """Base of elementwise operations over two children that broadcast, right-aligned."""

    color = "yellow"


class PlusNodeOp(ElementBinaryNodeOp):
    type = "+"
    cases = _BROADCASTS

    def forward_ops(self, a: Array, b: Array) -> Array:
        return a + b

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return adj, adj


class MinusNodeOp(ElementBinaryNodeOp):
    type = "-"
    cases = _BROADCASTS

    def forward_ops(self, a: Array, b: Array) -> Array:
        return a - b

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return adj, -adj


class MultNodeOp(ElementBinaryNodeOp):
    type = "*"
    cases = _BROADCASTS

    def forward_ops(self, a: Array, b: Array) -> Array:
        return a * b

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return adj * b, adj * a


class DivNodeOp(FloatNodeOp, ElementBinaryNodeOp):
    type = "/"
    cases = (
        Case((2, 3), (2, 3), domain=("real", "positive")),
        Case((4, 2, 3), (3,), domain=("real", "positive")),
        Case((2, 1), (1, 3), domain=("real", "positive")),
    )

    def forward_ops(self, a: Array, b: Array) -> Array:
        return a / b

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return adj / b, -adj * val / b


class NegNodeOp(UnaryNodeOp):
    type = "negate"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return -x

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (-adj,)


class ScalarAddNodeOp(UnaryNodeOp):
    type = "scalar_add"
    c: float
    cases = (Case((2, 3), c=2.5),)

    def forward_ops(self, x: Array) -> Array:
        return x + scalar(self.c, x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj,)


class ScalarMultNodeOp(UnaryNodeOp):
    type = "scalar_mult"
    c: float
    cases = (Case((2, 3), c=-1.5),)

    def forward_ops(self, x: Array) -> Array:
        return x * scalar(self.c, x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * self.c,)


def negate(x: Node) -> Node:
    """``-x``. Source: Marian, ``NegNodeOp``."""
    return NegNodeOp(x)


def plus(a: Any, b: Any) -> Node:
    """``a + b``, broadcast; one of them may be a number. Adding 0 returns the node itself."""
    if is_number(a):
        a, b = b, a
    if not is_number(b):
        return PlusNodeOp(a, b)
    c = number_for("+", a, b)
    return a if c == 0 else ScalarAddNodeOp(a, c=c)


def minus(a: Any, b: Any) -> Node:
    """``a - b``, broadcast; one of them may be a number. ``x - 0`` is ``x`` itself, ``0 - x`` is ``-x``."""
    if is_number(b):
        return plus(a, -number_for("-", a, b))
    if is_number(a):
        return plus(NegNodeOp(b), a)
    return MinusNodeOp(a, b)


def mult(a: Any, b: Any) -> Node:
    """``a * b``, broadcast; one of them may be a number. Multiplying by 1 returns the node itself."""
    if is_number(a):
        a, b = b, a
    if not is_number(b):
        return MultNodeOp(a, b)
    c = number_for("*", a, b)
    return a if c == 1 else ScalarMultNodeOp(a, c=c)


def div(a: Any, b: Any) -> Node:
    """``a / b``, broadcast; one of them may be a number.

    By a number ``c`` it is multiplication by ``1 / c``, as in Marian, which rounds differently.
    """
    if is_number(b):
        return mult(a, 1.0 / b if b != 0 else math.copysign(math.inf, b))
    return DivNodeOp(constant_for(b, a) if is_number(a) else a, b)


class LogAddExpNodeOp(FloatNodeOp, ElementBinaryNodeOp):
    type = "logaddexp"
    cases = _BROADCASTS

    def forward_ops(self, a: Array, b: Array) -> Array:
        return jnp.logaddexp(a, b)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return adj * jax.nn.sigmoid(a - b), adj * jax.nn.sigmoid(b - a)


def logaddexp(a: Node, b: Node) -> Node:
    """``log(exp(a) + exp(b))`` without overflow, broadcast.

    Gradient: ``sigmoid(a - b)`` and ``sigmoid(b - a)``. Source: Marian, ``logaddexp``.
    """
    return LogAddExpNodeOp(a, b)


class MaximumNodeOp(ElementBinaryNodeOp):
    type = "max"
    cases = (
        Case((2, 3), (2, 3), domain="distinct"),
        Case((4, 2, 3), (3,), domain="distinct"),
    )

    def forward_ops(self, a: Array, b: Array) -> Array:
        return jnp.maximum(a, b)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return jnp.where(a > b, adj, 0), jnp.where(a > b, 0, adj)


class MinimumNodeOp(ElementBinaryNodeOp):
    type = "min"
    cases = (
        Case((2, 3), (2, 3), domain="distinct"),
        Case((4, 2, 3), (3,), domain="distinct"),
    )

    def forward_ops(self, a: Array, b: Array) -> Array:
        return jnp.minimum(a, b)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return jnp.where(a < b, adj, 0), jnp.where(a < b, 0, adj)


def _number_first(a: Any, b: Any) -> tuple[Node, Node]:
    if is_number(b):
        a, b = b, a
    return (constant_for(node("maximum or minimum", b), a) if is_number(a) else a), b


def maximum(a: Any, b: Any) -> Node:
    """The larger of ``a`` and ``b``, broadcast; one of them may be a number.

    The gradient goes to ``a`` where ``a > b``, else to ``b``: ties go to the second. A number counts as
    the first in either order, so ``maximum(x, 0)`` has gradient 1 at ``x = 0``, unlike ``relu``.
    Source: Marian, ``maximum``.
    """
    return MaximumNodeOp(*_number_first(a, b))


def minimum(a: Any, b: Any) -> Node:
    """The smaller of ``a`` and ``b``, broadcast; one of them may be a number.

    The gradient goes to ``a`` where ``a < b``, else to ``b``: ties go to the second, and a number counts
    as the first. Source: Marian, ``minimum``.
    """
    return MinimumNodeOp(*_number_first(a, b))


class PowNodeOp(FloatUnaryNodeOp):
    """``x`` to a whole power, for any base; ``x ** n``. No twin in Marian."""

    type = "pow"
    n: int
    cases = (Case((2, 3), n=3), Case((2, 3), domain="positive", n=-2), Case((2, 3), n=0))

    def forward_ops(self, x: Array) -> Array:
        return jax.lax.integer_pow(x, self.n)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * self.n * jax.lax.integer_pow(x, self.n - 1) if self.n else jnp.zeros_like(x),)


def pow(a: Any, b: Any) -> Node:
    """``a`` to the power ``b`` as ``exp(log(a) * b)``; one of them may be a number.

    NaN for a negative base, also with a whole exponent; ``x ** n`` knows better. Source: Marian, ``pow``.
    """
    if is_number(a):
        return exp(mult(math.log(a) if a > 0 else -math.inf if a == 0 else math.nan, b))
    return exp(mult(log(a), b))


def power(a: Any, b: Any) -> Node:
    """``a ** b``: for a whole number ``b`` by multiplication, for any base; else ``pow(a, b)``.

    ``x ** 1`` returns ``x``. Gradient for a number n: ``n * x ** (n - 1)``.
    """
    if not is_number(b) or not float(b).is_integer():
        return pow(a, b)
    return a if b == 1 else PowNodeOp(a, n=int(b))
