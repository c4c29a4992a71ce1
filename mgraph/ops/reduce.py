"""Reductions along one axis, which stays with size 1. Over an axis of size 1 they return their input.

Means and sums of 16-bit values are accumulated in float32.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..cases import Case
from ..node import Node, UnaryNodeOp
from ..rules import derivative
from .arithmetic import MinusNodeOp, div
from .operands import FloatNodeOp, FloatUnaryNodeOp, Gradients, accumulable, axis_in, node, refusal


class ReduceNodeOp(UnaryNodeOp):
    """Base of the reductions."""

    color = "orange"
    axis: int
    cases: ClassVar[tuple[Case, ...]] = tuple(Case((2, 3, 4), axis=axis) for axis in (0, 1, 2))


class FloatReduceNodeOp(ReduceNodeOp, FloatUnaryNodeOp):
    """Base of the reductions of floating point numbers."""


def _reduce(cls: type[ReduceNodeOp], x: Node, axis: int) -> Node:
    axis = axis_in(cls.type, x, axis)
    return x if x.shape[axis] == 1 else cls(x, axis=axis)


class SumNodeOp(ReduceNodeOp):
    type = "sum"

    def forward_ops(self, x: Array) -> Array:
        return jnp.sum(x, self.axis, x.dtype, keepdims=True)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.broadcast_to(adj, x.shape),)


def sum(x: Node, axis: int = 0) -> Node:
    """The sum along ``axis``, the first one by default. Gradient: 1. Source: Marian, ``sum``."""
    return _reduce(SumNodeOp, x, axis)


class MeanNodeOp(FloatReduceNodeOp):
    type = "mean"

    def forward_ops(self, x: Array) -> Array:
        return jnp.mean(x, self.axis, keepdims=True)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.broadcast_to(adj / x.shape[self.axis], x.shape),)


def mean(x: Node, axis: int = 0) -> Node:
    """The mean of the N elements along ``axis``, the first one by default. Gradient: ``1 / N``.

    Source: Marian, ``mean``.
    """
    return _reduce(MeanNodeOp, x, axis)


class RmsNodeOp(FloatReduceNodeOp):
    type = "rms"

    def forward_ops(self, x: Array) -> Array:
        return jnp.sqrt(jnp.mean(x * x, self.axis, keepdims=True))

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.where(val == 0, 0, adj * x / (x.shape[self.axis] * val)),)


@derivative(RmsNodeOp, "marian")
def _(self: RmsNodeOp, adj: Array, val: Array, x: Array) -> Gradients:
    return (adj * x / val,)


class MeanSqrNodeOp(FloatReduceNodeOp):
    type = "meanSqr"

    def forward_ops(self, x: Array) -> Array:
        return jnp.mean(x * x, self.axis, keepdims=True)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (2 * adj * x / x.shape[self.axis],)


@derivative(MeanSqrNodeOp, "marian")
def _(self: MeanSqrNodeOp, adj: Array, val: Array, x: Array) -> Gradients:
    return (2 * adj * x,)


def _centred(x: Node, axis: int) -> Node:
    return MinusNodeOp(x, mean(x, axis))


def std(x: Node, axis: int = 0) -> Node:
    """The standard deviation of the N elements along ``axis`` (divided by N): ``rms(x - mean(x))``.

    Gradient: ``(x - mean) / (N y)``, 0 where ``y = 0``. Over one element it is ``x - x``. Marian forgets
    the ``1 / N`` of the gradient; the rule set ``"marian"`` does too. Source: Marian, ``std``.
    """
    axis = axis_in("std", x, axis)
    return MinusNodeOp(x, x) if x.shape[axis] == 1 else RmsNodeOp(_centred(x, axis), axis=axis)


def var(x: Node, axis: int = 0) -> Node:
    """The variance of the N elements along ``axis`` (divided by N): the mean of ``(x - mean(x))^2``.

    Gradient: ``2 (x - mean) / N``. Over one element it is ``x - x``. Marian forgets the ``1 / N`` of the
    gradient; the rule set ``"marian"`` does too. Source: Marian, ``var``.
    """
    axis = axis_in("var", x, axis)
    return MinusNodeOp(x, x) if x.shape[axis] == 1 else MeanSqrNodeOp(_centred(x, axis), axis=axis)


class ExtremumNodeOp(ReduceNodeOp):
    """Base of ``max`` and ``min``; every tied element gets the whole gradient."""

    cases = (Case((2, 3, 4), domain="distinct", axis=0), Case((2, 3, 4), domain="distinct", axis=2))

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.where(x == val, adj, 0),)


class MaxNodeOp(ExtremumNodeOp):
    type = "max"

    def forward_ops(self, x: Array) -> Array:
        return jnp.max(x, self.axis, keepdims=True)


class MinNodeOp(ExtremumNodeOp):
    type = "min"

    def forward_ops(self, x: Array) -> Array:
        return jnp.min(x, self.axis, keepdims=True)


def max(x: Node, axis: int = 0) -> Node:
    """The largest element along ``axis``, the first one by default.

    Gradient: 1 for every element that equals the largest (JAX splits it). Source: Marian, ``max``.
    """
    return _reduce(MaxNodeOp, x, axis)


def min(x: Node, axis: int = 0) -> Node:
    """The smallest element along ``axis``, the first one by default.

    Gradient: 1 for every element that equals the smallest (JAX splits it). Source: Marian, ``min``.
    """
    return _reduce(MinNodeOp, x, axis)


class ProdNodeOp(ReduceNodeOp):
    type = "prod"

    def forward_ops(self, x: Array) -> Array:
        return jnp.prod(x, self.axis, x.dtype, keepdims=True)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        before = jax.lax.cumprod(shifted(x, self.axis, 1.0, reverse=False), self.axis)
        after = jax.lax.cumprod(shifted(x, self.axis, 1.0, reverse=True), self.axis, reverse=True)
        return (adj * before * after,)


def prod(x: Node, axis: int = 0) -> Node:
    """The product along ``axis``, the first one by default.

    Gradient: the product of all other elements, right with zeros among them. Marian has none.
    Source: Marian, ``prod``.
    """
    return _reduce(ProdNodeOp, x, axis)


def shifted(x: Array, axis: int, fill: float, reverse: bool) -> Array:
    """``x`` moved by one along ``axis``, towards the end or, reversed, the start; ``fill`` moves in."""
    pad = [(0, 0, 0)] * x.ndim
    pad[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return jax.lax.pad(x, jnp.asarray(fill, x.dtype), pad)


class LogSumExpNodeOp(FloatReduceNodeOp):
    type = "logSumExp"

    def forward_ops(self, x: Array) -> Array:
        wide = accumulable(x)
        return jax.nn.logsumexp(wide, self.axis, keepdims=True).astype(x.dtype)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        # Where all are -inf there is no gradient, rather than exp(-inf + inf).
        return (adj * jnp.exp(x - jnp.where(jnp.isfinite(val), val, 0)),)


def logsumexp(x: Node, axis: int = 0) -> Node:
    """``log(sum(exp(x)))`` along ``axis``, the first one by default, without overflow.

    Gradient: ``exp(x - y)``, the softmax. Source: Marian, ``logsumexp``.
    """
    return _reduce(LogSumExpNodeOp, x, axis)


class ScalarProductNodeOp(FloatNodeOp):
    type = "scalar-product"
    color = "orange"
    axis: int
    cases = (Case((2, 3, 4), (2, 3, 4), axis=2), Case((2, 3, 4), (1, 3, 1), axis=1))

    def forward_ops(self, a: Array, b: Array) -> Array:
        return jnp.sum(a * b, self.axis, keepdims=True)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        full = np.broadcast_shapes(a.shape, b.shape)
        return jnp.broadcast_to(adj * b, full), jnp.broadcast_to(adj * a, full)


def scalar_product(a: Node, b: Node, axis: int = 0) -> Node:
    """The sum of ``a * b``, broadcast, along ``axis``, the first one by default.

    Gradients: ``b`` and ``a``. Source: Marian, ``scalar_product``.
    """
    longer = a if len(node("scalar_product", a).shape) >= len(node("scalar_product", b).shape) else b
    return ScalarProductNodeOp(a, b, axis=axis_in("scalar_product", longer, axis))


def weighted_average(x: Node, weights: Node, axis: int = 0) -> Node:
    """``sum(x * weights) / sum(weights)`` along ``axis``, the first one by default; NaN without weight.

    Source: Marian, ``weighted_average``.
    """
    if len(node("weighted_average", x).shape) != len(node("weighted_average", weights).shape):
        raise refusal("weighted_average", "expected weights with as many axes as the node", x, weights)
    return div(scalar_product(x, weights, axis), sum(weights, axis))
