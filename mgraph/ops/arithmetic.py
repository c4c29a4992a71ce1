"""Arithmetic: nodes with nodes, and nodes with numbers.

The functions ``plus``, ``minus``, ``mult`` and ``div`` are what Python's operators on nodes call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
from jax import Array

from ..cases import Case, Convention
from ..errors import ElementTypeError
from ..node import NaryNodeOp, Node, Operand, UnaryNodeOp
from ..places import here
from .operands import (
    FloatNodeOp,
    Gradients,
    constant_for,
    is_number,
    node,
    number_for,
    scalar,
    unless_nan,
    wrapped,
)
from .precision import in_float32

_BROADCASTS = (Case((2, 3), (2, 3)), Case((4, 2, 3), (3,)), Case((2, 1), (1, 3)))


class ElementBinaryNodeOp(NaryNodeOp):
    """Base of elementwise operations over two children that broadcast, right-aligned."""

    color = "yellow"
    broadcasts = True


class PlusNodeOp(ElementBinaryNodeOp):
    type = "+"
    computed_once = True
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
    runtime_fields = ("c",)
    cases = (Case((2, 3), c=2.5),)

    def forward_ops(self, x: Array) -> Array:
        return x + scalar(self.c, x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj,)


class ScalarMultNodeOp(UnaryNodeOp):
    type = "scalar_mult"
    c: float
    runtime_fields = ("c",)
    cases = (Case((2, 3), c=-1.5),)

    def forward_ops(self, x: Array) -> Array:
        return x * scalar(self.c, x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * self.c,)


def negate(x: Node) -> Node:
    """``-x``. Shape: that of ``x``. Gradient: ``-adj``. Source: Marian, ``operator-``."""
    return NegNodeOp(x)


def sum_of(op: str, x: Node | Sequence[Node]) -> Node:
    """``x`` itself, or the sum of a list of nodes, as the operand of the function ``op``."""
    if isinstance(x, Node):
        return x
    terms = x if isinstance(x, Sequence) else [x]
    if not terms:
        raise ElementTypeError(f"{op}: expected at least one node{here()}")
    return functools.reduce(plus, [node(op, term) for term in terms])


@overload
def plus(a: Operand, b: Operand) -> Node: ...
@overload
def plus(a: Sequence[Node]) -> Node: ...
def plus(a: Any, b: Any = None) -> Node:
    """``a + b``, one of which may be a number, or ``plus(nodes)``: the sum of a list of nodes.

    Adding 0 returns the node itself, and so does a list of one node.

    Shape: broadcast of all.
    Gradient: ``adj`` for each.
    Differs: Marian takes only a list of one node, and aborts on more.
    Source: Marian, ``operator+`` and ``plus``.
    """
    if b is None:
        return sum_of("plus", a)
    if is_number(a):
        a, b = b, a
    if not is_number(b):
        return PlusNodeOp(a, b)
    c = number_for("+", a, b)
    return a if c == 0 else ScalarAddNodeOp(a, c=c)


def minus(a: Any, b: Any) -> Node:
    """``a - b``, one of which may be a number. ``x - 0`` is ``x`` itself, ``0 - x`` is ``-x``.

    Shape: broadcast of both.
    Gradient: ``adj`` for ``a``, ``-adj`` for ``b``.
    Source: Marian, ``operator-``.
    """
    if is_number(b):
        return plus(a, wrapped(a, -number_for("-", a, b)))
    if is_number(a):
        c = number_for("-", b, a)
        return plus(NegNodeOp(b), c)
    return MinusNodeOp(a, b)


def mult(a: Any, b: Any) -> Node:
    """``a * b``, element by element; one of them may be a number. Multiplying by 1 returns the node itself.

    Shape: broadcast of both.
    Gradient: ``adj b`` for ``a``, ``adj a`` for ``b``.
    Source: Marian, ``operator*``.
    """
    if is_number(a):
        a, b = b, a
    if not is_number(b):
        return MultNodeOp(a, b)
    c = number_for("*", a, b)
    return a if c == 1 else ScalarMultNodeOp(a, c=c)


def div(a: Any, b: Any) -> Node:
    """``a / b``, one of which may be a number.

    Division by a number ``c`` multiplies by ``1 / c``, as in Marian; this rounds differently from a division.
    A number as the numerator becomes a new constant each time, so two such nodes are never merged.

    Shape: broadcast of both.
    Gradient: ``adj / b`` for ``a``, ``-adj y / b`` for ``b``.
    Source: Marian, ``operator/``.
    """
    if is_number(b):
        if not node("/", a).value_type.is_float:
            raise ElementTypeError(
                f'/: expected a node of a floating point type, got {a.value_type}; cast(x, "float32"){here()}'
            )
        b = number_for("/", a, b)  # a Python float: a numpy number might divide in 16 bits
        return mult(a, 1.0 / b if b != 0 else math.copysign(math.inf, b))
    return DivNodeOp(number_as_node("/", a, b) if is_number(a) else a, b)


def number_as_node(op: str, value: Any, other: Any, *, part: bool = False) -> Node:
    """The number ``value`` as a constant that broadcasts to the node ``other``, or to a ``part`` of it, of
    that node's element type.

    ``ElementTypeError`` if that type cannot hold it.
    """
    return constant_for(other, number_for(op, other, value), part=part)


class LogAddExpNodeOp(FloatNodeOp, ElementBinaryNodeOp):
    type = "logaddexp"
    cases = _BROADCASTS
    conventions = (
        Convention(
            [-math.inf, -math.inf, 0.0, 0.0],
            [-math.inf, 0.0, -math.inf, 0.0],
            gradients=([0, 0, 1, 0.5], [0, 1, 0, 0.5]),
        ),
    )

    def forward_ops(self, a: Array, b: Array) -> Array:
        return jnp.logaddexp(a, b)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        # Where both are -inf the gradient is 0, not the NaN of -inf + inf.
        some = jnp.maximum(a, b) != -jnp.inf
        difference = jnp.where(some, a - b, 0)
        adj = jnp.where(some, adj, 0)
        return adj * jax.nn.sigmoid(difference), adj * jax.nn.sigmoid(-difference)


def logaddexp(a: Node, b: Node) -> Node:
    """``log(exp(a) + exp(b))`` without overflow.

    Shape: broadcast of both.
    Gradient: ``adj sigmoid(a - b)`` for ``a``, ``adj sigmoid(b - a)`` for ``b``.
    Source: Marian, ``logaddexp``.
    """
    return LogAddExpNodeOp(a, b)


_TIES = (
    Convention(
        [1.0, math.nan, 0.0],
        [1.0, 0.0, math.nan],
        gradients=([0, math.nan, math.nan], [1, math.nan, math.nan]),
    ),
)
"""The gradient of a tie goes to the second operand; NaN goes to both."""


class MaximumNodeOp(ElementBinaryNodeOp):
    type = "max"
    cases = (Case((2, 3), (2, 3), domain="distinct"), Case((4, 2, 3), (3,), domain="distinct"))
    conventions = _TIES

    def forward_ops(self, a: Array, b: Array) -> Array:
        return jnp.maximum(a, b)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return unless_nan(val, jnp.where(a > b, adj, 0)), unless_nan(val, jnp.where(a > b, 0, adj))


class MinimumNodeOp(ElementBinaryNodeOp):
    type = "min"
    cases = (Case((2, 3), (2, 3), domain="distinct"), Case((4, 2, 3), (3,), domain="distinct"))
    conventions = _TIES

    def forward_ops(self, a: Array, b: Array) -> Array:
        return jnp.minimum(a, b)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return unless_nan(val, jnp.where(a < b, adj, 0)), unless_nan(val, jnp.where(a < b, 0, adj))


def _number_first(op: str, a: Any, b: Any) -> tuple[Node, Node]:
    if is_number(b):
        a, b = b, a
    return (number_as_node(op, a, b) if is_number(a) else a), b


def maximum(a: Operand, b: Operand) -> Node:
    """The larger of ``a`` and ``b``, element by element; one of them may be a number.

    A number is the first operand in either order, so ``maximum(x, 0)`` has gradient 1 at ``x = 0``, unlike
    ``relu``.

    Shape: broadcast of both.
    Gradient: ``adj`` for ``a`` where ``a > b``, else for ``b``: ties go to the second operand.
    Source: Marian, ``maximum``.
    """
    return MaximumNodeOp(*_number_first("maximum", a, b))


def minimum(a: Operand, b: Operand) -> Node:
    """The smaller of ``a`` and ``b``, element by element; one of them may be a number, which is the first
    operand in either order.

    Shape: broadcast of both.
    Gradient: ``adj`` for ``a`` where ``a < b``, else for ``b``: ties go to the second operand.
    Source: Marian, ``minimum``.
    """
    return MinimumNodeOp(*_number_first("minimum", a, b))
