"""Elementwise functions of one node; activations also take a list of nodes, and apply to its sum."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import real
from ..cases import Case, Convention
from ..errors import ArgumentError
from ..node import Node, UnaryNodeOp
from ..places import here
from .arithmetic import sum_of
from .operands import FloatNodeOp, FloatUnaryNodeOp, Gradients, node, nodes_in, unless_nan
from .precision import in_float32

Nodes = Node | Sequence[Node]
"""A node, or a list of nodes that stands for their sum."""


class SigmoidNodeOp(FloatUnaryNodeOp):
    type = "sigmoid"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jax.nn.sigmoid(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        # sigmoid(x) sigmoid(-x) would keep all digits where y is nearly 1. It takes twice as long, and
        # training computes this in every update.
        return (adj * val * (1 - val),)


def sigmoid(x: Nodes) -> Node:
    """The logistic function ``1 / (1 + exp(-x))``, of a node or of the sum of a list of nodes.

    Shape: that of ``x``, for a list the broadcast of all.
    Gradient: ``adj y (1 - y)``.
    Differs: Marian aborts on lists.
    Source: Marian, ``sigmoid``.
    """
    return SigmoidNodeOp(sum_of("sigmoid", x))


class TanhNodeOp(FloatNodeOp):
    type = "tanh"
    color = "yellow"
    broadcasts = True
    cases = (Case((2, 3)), Case((2, 3), (2, 3), (1, 3)))

    def forward_ops(self, *xs: Array) -> Array:
        return jnp.tanh(functools.reduce(operator.add, xs))

    def backward_ops(self, adj: Array, val: Array, *xs: Array) -> Gradients:
        # 4 e / (1 + e)^2 with e = exp(-2 |x|) would keep all digits where y is nearly 1. It takes 2.5 times
        # as long, and training computes this in every update.
        return (adj * ((1 - val) * (1 + val)),) * len(xs)


def tanh(*xs: Nodes) -> Node:
    """The hyperbolic tangent of the sum of one or more nodes, or of a list of nodes, as one node.

    Shape: broadcast of all.
    Gradient: ``adj (1 - y^2)`` for each.
    Source: Marian, ``tanh``.
    """
    nodes = [n for x in xs for n in ((x,) if isinstance(x, Node) else nodes_in("tanh", x))]
    return TanhNodeOp(*nodes)


class ReLUNodeOp(UnaryNodeOp):
    type = "ReLU"
    cases = (Case((2, 3), domain="distinct"),)
    conventions = (Convention([-0.0, 0.0, math.nan], gradients=([0, 0, math.nan],)),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.maximum(x, jnp.zeros((), x.dtype))

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (unless_nan(x, jnp.where(x > 0, adj, 0)),)


def relu(x: Nodes) -> Node:
    """``max(x, 0)``, of a node or of the sum of a list of nodes.

    Shape: that of ``x``, for a list the broadcast of all.
    Gradient: ``adj`` where ``x > 0``, else 0, also at 0.
    Differs: Marian takes only a list of one node, and aborts on more.
    Source: Marian, ``relu``.
    """
    return ReLUNodeOp(sum_of("relu", x))


class PReLUNodeOp(FloatUnaryNodeOp):
    type = "PReLU"
    alpha: float
    runtime_fields = ("alpha",)
    cases = (Case((2, 3), domain="distinct", alpha=0.2),)
    conventions = (Convention([0.0, math.nan], gradients=([0.2, math.nan],), alpha=0.2),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.where(x > 0, x, self.alpha * x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (unless_nan(x, jnp.where(x > 0, adj, self.alpha * adj)),)


def prelu(x: Nodes, alpha: float = 0.01) -> Node:
    """``x`` where ``x > 0``, else ``alpha x``, of a node or of the sum of a list of nodes.

    ``alpha`` is a number and not learnt.

    Shape: that of ``x``, for a list the broadcast of all.
    Gradient: ``adj`` where ``x > 0``, else ``alpha adj``, also at 0.
    Differs: Marian aborts on lists.
    Source: Marian, ``prelu``.
    """
    return PReLUNodeOp(sum_of("prelu", x), alpha=real("prelu", "alpha", alpha))


def leakyrelu(x: Nodes) -> Node:
    """``prelu(x, 0.01)``: ``x`` where ``x > 0``, else ``0.01 x``.

    Shape: that of ``x``, for a list the broadcast of all.
    Gradient: ``adj`` where ``x > 0``, else ``0.01 adj``, also at 0.
    Differs: Marian aborts on lists.
    Source: Maas et al. 2013; Marian, ``leakyrelu``.
    """
    return prelu(x, 0.01)


class SwishNodeOp(FloatUnaryNodeOp):
    type = "swish"
    b: float = 1.0
    runtime_fields = ("b",)
    cases = (Case((2, 3)), Case((2, 3), b=1.702))

    def forward_ops(self, x: Array) -> Array:
        return x * jax.nn.sigmoid(self.b * x)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        z = self.b * x
        s = jax.nn.sigmoid(z)
        return (adj * s * (1 + z * (1 - s)),)


def swish(x: Nodes) -> Node:
    """``y = x s`` with ``s = sigmoid(x)``, of a node or of the sum of a list of nodes.

    Shape: that of ``x``, for a list the broadcast of all.
    Gradient: ``adj s (1 + x (1 - s))``.
    Differs: Marian takes only a list of one node, and aborts on more.
    Source: Ramachandran et al. 2017; Marian, ``swish``.
    """
    return SwishNodeOp(sum_of("swish", x))


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


def gelu(x: Nodes) -> Node:
    """``x Phi(x)`` with the normal distribution function, ``Phi(x) = (1 + erf(x / sqrt 2)) / 2``.

    Of a node or of the sum of a list of nodes. Exact, not approximated by ``tanh`` or ``swish``.

    Shape: that of ``x``, for a list the broadcast of all.
    Gradient: ``adj (Phi(x) + x phi(x))`` with the normal density ``phi``.
    Differs: Marian takes only a list of one node, and aborts on more.
    Source: Hendrycks and Gimpel 2016; Marian, ``gelu``.
    """
    return GeluNodeOp(sum_of("gelu", x))


class LogNodeOp(FloatUnaryNodeOp):
    type = "log"
    cases = (Case((2, 3), domain="positive"),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.log(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj / x,)


def log(x: Node) -> Node:
    """The natural logarithm; -inf at 0, NaN below.

    Shape: that of ``x``.
    Gradient: ``adj / x``.
    Differs: Marian's vector kernel on CPU gives NaN at 0.
    Source: Marian, ``log``.
    """
    return LogNodeOp(x)


class ExpNodeOp(FloatUnaryNodeOp):
    type = "exp"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.exp(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * val,)


def exp(x: Node) -> Node:
    """``e`` to the power ``x``.

    Shape: that of ``x``.
    Gradient: ``adj y``.
    Differs: Marian's vector kernel on CPU cuts ``x`` to +-88.4, so that it never gives inf.
    Source: Marian, ``exp``.
    """
    return ExpNodeOp(x)


class SinNodeOp(FloatUnaryNodeOp):
    type = "sin"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.sin(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * jnp.cos(x),)


def sin(x: Node) -> Node:
    """The sine of ``x`` radians.

    Shape: that of ``x``.
    Gradient: ``adj cos(x)``.
    Source: Marian, ``sin``.
    """
    return SinNodeOp(x)


class CosNodeOp(FloatUnaryNodeOp):
    type = "cos"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.cos(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (-adj * jnp.sin(x),)


def cos(x: Node) -> Node:
    """The cosine of ``x`` radians.

    Shape: that of ``x``.
    Gradient: ``-adj sin(x)``.
    Source: Marian, ``cos``.
    """
    return CosNodeOp(x)


class TanNodeOp(FloatUnaryNodeOp):
    type = "tan"
    cases = (Case((2, 3), domain="unit"),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.tan(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * (1 + val * val),)


def tan(x: Node) -> Node:
    """The tangent of ``x`` radians.

    Shape: that of ``x``.
    Gradient: ``adj (1 + y^2)``, which is ``adj / cos(x)^2``.
    Source: Marian, ``tan``.
    """
    return TanNodeOp(x)


class SqrtNodeOp(FloatUnaryNodeOp):
    type = "sqrt"
    eps: float = 0.0
    runtime_fields = ("eps",)
    cases = (Case((2, 3), domain="positive", eps=0.0), Case((2, 3), domain="positive", eps=0.1))

    def forward_ops(self, x: Array) -> Array:
        return jnp.sqrt(x + self.eps)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (0.5 * adj / val,)


def sqrt(x: Node, eps: float = 0.0) -> Node:
    """``sqrt(x + eps)``. NaN below ``-eps``.

    Shape: that of ``x``.
    Gradient: ``adj / (2 y)``, infinite where ``y = 0``.
    Source: Marian, ``sqrt``.
    """
    return SqrtNodeOp(x, eps=real("sqrt", "eps", eps))


class SquareNodeOp(UnaryNodeOp):
    type = "square"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return x * x

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (2 * adj * x,)


def square(x: Node) -> Node:
    """``x * x``. Shape: that of ``x``. Gradient: ``2 adj x``. Source: Marian, ``square``."""
    return SquareNodeOp(x)


class AbsNodeOp(UnaryNodeOp):
    type = "abs"
    cases = (Case((2, 3), domain="distinct"),)
    conventions = (Convention([0.0, math.nan], gradients=([0, math.nan],)),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.abs(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * jnp.sign(x),)


def abs(x: Node) -> Node:
    """The absolute value.

    Shape: that of ``x``.
    Gradient: ``adj`` times the sign of ``x``, 0 at 0.
    Source: Marian, ``abs``.
    """
    return AbsNodeOp(x)


class ClipNodeOp(FloatUnaryNodeOp):
    type = "clip"
    c: float
    runtime_fields = ("c",)
    cases = (Case((2, 3), domain="distinct", c=0.4),)
    conventions = (Convention([-0.4, 0.4, math.nan], gradients=([0, 0, math.nan],), c=0.4),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.clip(x, -self.c, self.c)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (unless_nan(x, jnp.where(jnp.abs(x) < self.c, adj, 0)),)


def clip(x: Node, c: float) -> Node:
    """``x`` cut to ``[-c, c]``; ``c = 0`` returns ``x`` itself. ``ArgumentError`` for a negative bound.

    Shape: that of ``x``.
    Gradient: ``adj`` where ``|x| < c``, else 0, also at the bounds.
    Source: Marian, ``clip``.
    """
    c = real("clip", "c", c)
    if c < 0:
        raise ArgumentError(f"clip: expected a bound of at least 0, got {c}{here()}")
    return node("clip", x) if c == 0 else ClipNodeOp(x, c=c)
