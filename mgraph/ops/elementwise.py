"""Elementwise functions of one node, and ``tanh`` of a sum of nodes. Gradients: ``adj * f'(x)``."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from ..cases import Case
from ..node import Node, UnaryNodeOp
from .operands import FloatNodeOp, FloatUnaryNodeOp, Gradients


class SigmoidNodeOp(FloatUnaryNodeOp):
    type = "sigmoid"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jax.nn.sigmoid(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * val * (1 - val),)


def sigmoid(x: Node) -> Node:
    """The logistic function ``1 / (1 + exp(-x))``. Gradient: ``y (1 - y)``. Source: Marian, ``sigmoid``."""
    return SigmoidNodeOp(x)


class TanhNodeOp(FloatNodeOp):
    type = "tanh"
    color = "yellow"
    cases = (Case((2, 3)), Case((2, 3), (2, 3), (1, 3)))

    def forward_ops(self, *xs: Array) -> Array:
        return jnp.tanh(functools.reduce(operator.add, xs))

    def backward_ops(self, adj: Array, val: Array, *xs: Array) -> Gradients:
        return (adj * (1 - val * val),) * len(xs)


def tanh(*xs: Node | Sequence[Node]) -> Node:
    """The hyperbolic tangent of the sum of one or more nodes, or of a list of nodes, broadcast.

    Gradient by each: ``1 - y^2``. Source: Marian, ``tanh``.
    """
    nodes = [n for x in xs for n in ((x,) if isinstance(x, Node) else x)]
    return TanhNodeOp(*nodes)


class ReLUNodeOp(UnaryNodeOp):
    type = "ReLU"
    cases = (Case((2, 3), domain="distinct"),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.maximum(x, 0)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.where(x > 0, adj, 0),)


def relu(x: Node) -> Node:
    """``max(x, 0)``. Gradient: 1 where ``x > 0``, 0 at 0. Source: Marian, ``relu``."""
    return ReLUNodeOp(x)


class PReLUNodeOp(FloatUnaryNodeOp):
    type = "PReLU"
    alpha: float
    cases = (Case((2, 3), domain="distinct", alpha=0.2),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.where(x > 0, x, self.alpha * x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.where(x > 0, adj, self.alpha * adj),)


def prelu(x: Node, alpha: float = 0.01) -> Node:
    """``x`` where ``x > 0``, else ``alpha * x``; ``alpha`` is a constant, not learnt.

    Gradient: 1 or ``alpha``, ``alpha`` at 0. Source: Marian, ``prelu``.
    """
    return PReLUNodeOp(x, alpha=float(alpha))


def leakyrelu(x: Node) -> Node:
    """``prelu(x, 0.01)``. Source: Marian, ``leakyrelu``."""
    return prelu(x, 0.01)


class SwishNodeOp(FloatUnaryNodeOp):
    type = "swish"
    b: float = 1.0
    cases = (Case((2, 3)), Case((2, 3), b=1.702))

    def forward_ops(self, x: Array) -> Array:
        return x * jax.nn.sigmoid(self.b * x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        s = jax.nn.sigmoid(self.b * x)
        return (adj * (self.b * val + s * (1 - self.b * val)),)


def swish(x: Node) -> Node:
    """``y = x s`` with ``s = sigmoid(x)``. Gradient: ``y + s (1 - y)``.

    Source: Ramachandran et al. 2017; Marian, ``swish``.
    """
    return SwishNodeOp(x)


class GeluNodeOp(FloatUnaryNodeOp):
    type = "gelu"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jax.nn.gelu(x, approximate=False)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        u = x * math.sqrt(0.5)
        cdf = 0.5 * jax.lax.erfc(-u)
        pdf = jnp.exp(-(u * u)) * (1 / math.sqrt(2 * math.pi))
        return (adj * (cdf + x * pdf),)


def gelu(x: Node) -> Node:
    """``x Phi(x)`` with the normal distribution function, ``Phi(x) = (1 + erf(x / sqrt 2)) / 2``.

    Not an approximation. Gradient: ``Phi(x) + x phi(x)``. Source: Hendrycks and Gimpel 2016; Marian,
    ``gelu``.
    """
    return GeluNodeOp(x)


class LogNodeOp(FloatUnaryNodeOp):
    type = "log"
    cases = (Case((2, 3), domain="positive"),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.log(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj / x,)


def log(x: Node) -> Node:
    """The natural logarithm; -inf at 0, NaN below. Gradient: ``1 / x``. Source: Marian, ``log``."""
    return LogNodeOp(x)


class ExpNodeOp(FloatUnaryNodeOp):
    type = "exp"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.exp(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * val,)


def exp(x: Node) -> Node:
    """``e`` to the power ``x``. Gradient: ``y``. Source: Marian, ``exp``."""
    return ExpNodeOp(x)


class SinNodeOp(FloatUnaryNodeOp):
    type = "sin"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.sin(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * jnp.cos(x),)


def sin(x: Node) -> Node:
    """The sine of ``x`` radians. Gradient: ``cos x``. Source: Marian, ``sin``."""
    return SinNodeOp(x)


class CosNodeOp(FloatUnaryNodeOp):
    type = "cos"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.cos(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (-adj * jnp.sin(x),)


def cos(x: Node) -> Node:
    """The cosine of ``x`` radians. Gradient: ``-sin x``. Source: Marian, ``cos``."""
    return CosNodeOp(x)


class TanNodeOp(FloatUnaryNodeOp):
    type = "tan"
    cases = (Case((2, 3), domain="unit"),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.tan(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * (1 + val * val),)


def tan(x: Node) -> Node:
    """The tangent of ``x`` radians. Gradient: ``1 / cos^2 x = 1 + y^2``. Source: Marian, ``tan``."""
    return TanNodeOp(x)


class SqrtNodeOp(FloatUnaryNodeOp):
    type = "sqrt"
    eps: float
    cases = (Case((2, 3), domain="positive", eps=0.0), Case((2, 3), domain="positive", eps=0.1))

    def forward_ops(self, x: Array) -> Array:
        return jnp.sqrt(x + self.eps)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (0.5 * adj / val,)


def sqrt(x: Node, eps: float = 0.0) -> Node:
    """``sqrt(x + eps)``. Gradient: ``0.5 / y``, infinite where ``y = 0``. Source: Marian, ``sqrt``."""
    return SqrtNodeOp(x, eps=float(eps))


class SquareNodeOp(UnaryNodeOp):
    type = "square"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return x * x

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (2 * adj * x,)


def square(x: Node) -> Node:
    """``x * x``. Gradient: ``2 x``. Source: Marian, ``square``."""
    return SquareNodeOp(x)


class AbsNodeOp(UnaryNodeOp):
    type = "abs"
    cases = (Case((2, 3), domain="distinct"),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.abs(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * jnp.sign(x),)


def abs(x: Node) -> Node:
    """The absolute value. Gradient: the sign of ``x``, 0 at 0. Source: Marian, ``abs``."""
    return AbsNodeOp(x)


class ClipNodeOp(FloatUnaryNodeOp):
    type = "clip"
    c: float
    cases = (Case((2, 3), domain="distinct", c=0.4),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.clip(x, -self.c, self.c)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.where(jnp.abs(x) < self.c, adj, 0),)


def clip(x: Node, c: float) -> Node:
    """``x`` cut to ``[-c, c]``; ``c = 0`` returns ``x`` itself.

    Gradient: 1 where ``|x| < c``, else 0, also at the bounds. Source: Marian, ``clip``.
    """
    return x if c == 0 else ClipNodeOp(x, c=float(c))
