"""Reductions along one or several axes, which stay with size 1. Over axes of size 1 they return their input.

Sums and products of 16-bit numbers are accumulated in float32 and rounded once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..cases import Case, Convention
from ..errors import ShapeError
from ..node import Node, UnaryNodeOp
from ..rules import derivative
from ..shape import Shape
from ..specs import Spec, Specs
from .arithmetic import MinusNodeOp, div
from .operands import FloatNodeOp, FloatUnaryNodeOp, Gradients, axes_in, axis_in, node, refusal, unless_nan
from .precision import in_float32, widened
from .shape import reshape, transpose
from .structure import cast

Axes = int | Sequence[int]


class ReduceNodeOp(UnaryNodeOp):
    """Base of the reductions."""

    color = "orange"
    axis: int
    cases: ClassVar[tuple[Case, ...]] = tuple(Case((2, 3, 4), axis=axis) for axis in (0, 1, 2))


class FloatReduceNodeOp(ReduceNodeOp, FloatUnaryNodeOp):
    """Base of the reductions of floating point numbers."""


def _reduce(cls: type[ReduceNodeOp], x: Node, axes: Axes) -> Node:
    def along(x: Node, axis: int) -> Node:
        return x if x.shape[axis] == 1 else cls(x, axis=axis)

    return over_axes(along, x, axes_in(cls.type, x, axes))


def over_axes(
    reduction: Callable[[Node, int], Node], x: Node, axes: tuple[int, ...], shape: Shape | None = None
) -> Node:
    """``reduction(x, axis)`` over ascending ``axes``, which are first merged into one. The result has
    ``shape``, or by default size 1 along the axes."""
    if len(axes) < 2:
        found = reduction(x, axes[0]) if axes else x
        return found if shape is None else reshape(found, shape)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if shape is None else shape
    rest = [i for i in range(len(x.shape)) if i not in axes]
    if axes[-1] - axes[0] >= len(axes):
        x = transpose(x, (*rest, *axes))
        axes = tuple(range(len(rest), len(x.shape)))
    joined = (*x.shape[: axes[0]], math.prod(x.shape[a] for a in axes), *x.shape[axes[-1] + 1 :])
    return reshape(reduction(reshape(x, joined), axes[0]), kept)


class SumNodeOp(ReduceNodeOp):
    type = "sum"

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        return jnp.sum(x, self.axis, x.dtype, keepdims=True)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.broadcast_to(adj, x.shape),)


def sum(x: Node, axis: Axes = 0) -> Node:
    """The sum along ``axis``, one or several, the first by default.

    Shape: that of ``x`` with size 1 along ``axis``; ``x`` itself if it has that shape.
    Gradient: ``adj``.
    Source: Marian, ``sum``.
    """
    return _reduce(SumNodeOp, x, axis)


class MeanNodeOp(FloatReduceNodeOp):
    type = "mean"

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        return jnp.mean(x, self.axis, keepdims=True)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.broadcast_to(adj / x.shape[self.axis], x.shape),)


def mean(x: Node, axis: Axes = 0) -> Node:
    """The mean of the N elements along ``axis``, one or several, the first by default.

    Shape: that of ``x`` with size 1 along ``axis``; ``x`` itself if it has that shape.
    Gradient: ``adj / N``.
    Source: Marian, ``mean``.
    """
    return _reduce(MeanNodeOp, x, axis)


class CentredNodeOp(FloatReduceNodeOp):
    """``x - mean(x)``, for ``std`` and ``var``. No counterpart in Marian, which subtracts the mean's node."""

    type = "centred"
    color = "yellow"

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        return centred(x, self.axis)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj - jnp.mean(adj, self.axis, keepdims=True),)


def centred(x: Array, axis: int) -> Array:
    """``x - mean(x)`` along ``axis``.

    The first element is subtracted first, so that equal numbers give exactly 0. Otherwise only rounding
    errors would remain to be scaled, and XLA may round differently for each use.
    """
    if not x.shape[axis]:
        return x
    distance = x - jax.lax.slice_in_dim(x, 0, 1, axis=axis)
    return distance - jnp.mean(distance, axis, keepdims=True)


class RmsNodeOp(FloatReduceNodeOp):
    type = "rms"
    conventions = (Convention([0.0, 0.0], axis=0, gradients=([0, 0],)),)

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        return jnp.sqrt(jnp.mean(x * x, self.axis, keepdims=True))

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj * _direction(x, val) / x.shape[self.axis],)


@derivative(RmsNodeOp, "marian")
@in_float32
def _(self: RmsNodeOp, adj: Array, val: Array, x: Array) -> Gradients:
    return (adj * _direction(x, val),)


def _direction(x: Array, y: Array) -> Array:
    """``x / y``; 0 where ``y = 0``, as all x are 0 there."""
    return x / jnp.where(y == 0, 1, y)


class MeanSqrNodeOp(FloatReduceNodeOp):
    type = "meanSqr"

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        return jnp.mean(x * x, self.axis, keepdims=True)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (2 * adj * x / x.shape[self.axis],)


@derivative(MeanSqrNodeOp, "marian")
@in_float32
def _(self: MeanSqrNodeOp, adj: Array, val: Array, x: Array) -> Gradients:
    return (2 * adj * x,)


def std(x: Node, axis: Axes = 0) -> Node:
    """The standard deviation of the N elements along ``axis``, one or several: ``rms(x - mean(x))``,
    over N, not N - 1.

    Over one element, and over no axis, it is ``x - x``; over no elements it is NaN. With 16-bit numbers, all
    of it is computed in float32.

    Shape: that of ``x`` with size 1 along ``axis``.
    Gradient: ``adj (x - mean(x)) / (N y)``, 0 where ``y = 0``.
    Differs: Marian omits the ``1 / N`` of the gradient; so does the rule set ``"marian"``. Source: Marian,
    ``std``.
    """
    return _deviation(RmsNodeOp, "std", x, axis)


def var(x: Node, axis: Axes = 0) -> Node:
    """The variance of the N elements along ``axis``, one or several: the mean of ``(x - mean(x))^2``, over
    N, not N - 1.

    Over one element, and over no axis, it is ``x - x``; over no elements it is NaN. With 16-bit numbers, all
    of it is computed in float32.

    Shape: that of ``x`` with size 1 along ``axis``.
    Gradient: ``2 adj (x - mean(x)) / N``.
    Differs: Marian omits the ``1 / N`` of the gradient; so does the rule set ``"marian"``. Source: Marian,
    ``var``.
    """
    return _deviation(MeanSqrNodeOp, "var", x, axis)


def _deviation(cls: type[FloatReduceNodeOp], op: str, x: Node, axes: Axes) -> Node:
    def along(x: Node, axis: int) -> Node:
        if x.shape[axis] == 1:
            return MinusNodeOp(x, x)
        (wide,) = widened(x)
        return cast(cls(CentredNodeOp(wide, axis=axis), axis=axis), x.value_type)

    found = axes_in(op, x, axes)
    return over_axes(along, x, found) if found else MinusNodeOp(x, x)


class ExtremumNodeOp(ReduceNodeOp):
    """Base of ``max`` and ``min``; every tied element gets the whole gradient."""

    cases = (Case((2, 3, 4), domain="distinct", axis=0), Case((2, 3, 4), domain="distinct", axis=2))

    def new_spec(self, x: Spec) -> Specs:
        if not x.shape[self.axis]:
            raise ShapeError(f"axis {self.axis} has no elements to take the {self.type} of")
        return super().new_spec(x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (unless_nan(val, jnp.where(x == val, adj, 0)),)


def _convention(x: list[list[float]]) -> Convention:
    """Two ties in the first row; a NaN in the second, which makes its gradient NaN."""
    return Convention(x, axis=1, gradients=([[0, 1, 1], [math.nan] * 3],))


class MaxNodeOp(ExtremumNodeOp):
    type = "max"
    conventions = (_convention([[1.0, 3.0, 3.0], [1.0, 2.0, math.nan]]),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.max(x, self.axis, keepdims=True)


class MinNodeOp(ExtremumNodeOp):
    type = "min"
    conventions = (_convention([[3.0, 1.0, 1.0], [2.0, 1.0, math.nan]]),)

    def forward_ops(self, x: Array) -> Array:
        return jnp.min(x, self.axis, keepdims=True)


def max(x: Node, axis: Axes = 0) -> Node:
    """The largest element along ``axis``, one or several, the first by default.

    ``ShapeError`` if there are no elements.

    Shape: that of ``x`` with size 1 along ``axis``; ``x`` itself if it has that shape.
    Gradient: ``adj`` for every element that equals the largest; ``jax.grad`` divides it among them.
    Source: Marian, ``max``.
    """
    return _reduce(MaxNodeOp, x, axis)


def min(x: Node, axis: Axes = 0) -> Node:
    """The smallest element along ``axis``, one or several, the first by default.

    ``ShapeError`` if there are no elements.

    Shape: that of ``x`` with size 1 along ``axis``; ``x`` itself if it has that shape.
    Gradient: ``adj`` for every element that equals the smallest; ``jax.grad`` divides it among them.
    Source: Marian, ``min``.
    """
    return _reduce(MinNodeOp, x, axis)


class ProdNodeOp(ReduceNodeOp):
    type = "prod"

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        return jnp.prod(x, self.axis, x.dtype, keepdims=True)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        before = jax.lax.cumprod(shifted(x, self.axis, 1.0, reverse=False), self.axis)
        after = jax.lax.cumprod(shifted(x, self.axis, 1.0, reverse=True), self.axis, reverse=True)
        return (adj * before * after,)


def prod(x: Node, axis: Axes = 0) -> Node:
    """The product along ``axis``, one or several, the first by default.

    Shape: that of ``x`` with size 1 along ``axis``; ``x`` itself if it has that shape.
    Gradient: ``adj`` times the product of all other elements, correct with zeros among them.
    Differs: Marian has no gradient here.
    Source: Marian, ``prod``.
    """
    return _reduce(ProdNodeOp, x, axis)


def shifted(x: Array, axis: int, fill: float, reverse: bool) -> Array:
    """``x`` moved by one along ``axis``, towards the end or, reversed, the start; ``fill`` moves in."""
    pad = [(0, 0, 0)] * x.ndim
    pad[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return jax.lax.pad(x, jnp.asarray(fill, x.dtype), pad)


def exponentials(x: Array, axis: int) -> tuple[Array, Array, Array]:
    """``x - top`` along ``axis``, with ``top`` the largest element, its ``exp``, and their sum. Where all
    elements are -inf, the shares ``exp(x - top) / sum`` are 0 rather than NaN. All rules of an operator use
    this function, so that XLA computes it once.
    """
    distance = x - largest(x, axis)
    powers = jnp.exp(distance)
    return distance, powers, divisor(jnp.sum(powers, axis, keepdims=True))


def largest(x: Array, axis: int) -> Array:
    """The largest element along ``axis``, to be subtracted from all elements; a finite number where it is
    -inf or there are no elements."""
    lowest = float(jnp.finfo(x.dtype).min)
    top = jnp.max(x, axis, keepdims=True, initial=None if x.shape[axis] else lowest)
    return jnp.maximum(jax.lax.stop_gradient(top), lowest)


def divisor(total: Array) -> Array:
    """A divisor for the terms of a sum that is either about 1 or more, or 0 because all terms are. It is a
    maximum, because a ``where`` keeps XLA on CPUs from vectorizing the divisions.
    """
    return jnp.maximum(total, 0.5)


class LogSumExpNodeOp(FloatReduceNodeOp):
    type = "logSumExp"
    conventions = (
        Convention(
            [[-math.inf, -math.inf], [-math.inf, 0.0], [1000.0, 1000.0], [-1000.0, -1000.0]],
            axis=1,
            gradients=([[0, 0], [0, 1], [0.5, 0.5], [0.5, 0.5]],),
        ),
    )

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        return jax.nn.logsumexp(x, self.axis, keepdims=True)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        # Not exp(x - y): where y is large, or has few bits, its rounding error is too large for exp.
        _, powers, total = exponentials(x, self.axis)
        return (powers * (adj / total),)


def logsumexp(x: Node, axis: Axes = 0) -> Node:
    """``log(sum(exp(x)))`` along ``axis``, one or several, the first by default, without overflow.

    Where all elements are -inf it is -inf, and the gradient is 0.

    Shape: that of ``x`` with size 1 along ``axis``; ``x`` itself if it has that shape.
    Gradient: ``adj exp(x - y)``, which is ``adj softmax(x)``.
    Source: Marian, ``logsumexp``.
    """
    return _reduce(LogSumExpNodeOp, x, axis)


class ScalarProductNodeOp(FloatNodeOp):
    type = "scalar-product"
    color = "orange"
    broadcasts = True
    axis: int
    cases = (Case((2, 3, 4), (2, 3, 4), axis=1), Case((2, 3, 4), (1, 3, 1), axis=2))

    @in_float32
    def forward_ops(self, a: Array, b: Array) -> Array:
        return jnp.sum(a * b, self.axis, keepdims=True)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        full = np.broadcast_shapes(a.shape, b.shape)
        return jnp.broadcast_to(adj * b, full), jnp.broadcast_to(adj * a, full)


def scalar_product(a: Node, b: Node, axis: int = 0) -> Node:
    """The sum of ``a * b``, broadcast, along ``axis``, the first by default.

    Shape: broadcast of both with size 1 along ``axis``.
    Gradient: ``adj b`` for ``a``, ``adj a`` for ``b``.
    Source: Marian, ``scalar_product``.
    """
    longer = a if len(node("scalar_product", a).shape) >= len(node("scalar_product", b).shape) else b
    return ScalarProductNodeOp(a, b, axis=axis_in("scalar_product", longer, axis))


def weighted_average(x: Node, weights: Node, axis: int = 0) -> Node:
    """``sum(x * weights) / sum(weights)`` along ``axis``, the first by default; NaN if all weights are 0.

    Weights of size 1 along ``axis`` are not repeated in their sum, so that they cancel: as in Marian, the
    result is then the sum of ``x``. With 16-bit numbers, all of it is computed in float32. ``ShapeError``
    unless ``x`` and ``weights`` have equally many axes.

    Shape: broadcast of both with size 1 along ``axis``.
    Gradient: that of its parts; with ``s = sum(weights)``: ``adj weights / s`` for ``x``,
    ``adj (x - y) / s`` for ``weights``.
    Source: Marian, ``weighted_average``.
    """
    if len(node("weighted_average", x).shape) != len(node("weighted_average", weights).shape):
        raise refusal("weighted_average", "expected weights with as many axes as the node", x, weights)
    wide, shares = widened(x, weights)
    average = div(scalar_product(wide, shares, axis), sum(shares, axis))
    return cast(average, x.value_type)
