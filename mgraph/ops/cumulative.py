"""Cumulative sums along an axis, accumulated in float32 or wider."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import flag
from ..cases import Case, Convention
from ..node import Node, UnaryNodeOp
from ..rules import derivative
from .operands import FloatUnaryNodeOp, Gradients, axis_in
from .precision import in_float32
from .reduce import shifted


class CumulativeNodeOp(UnaryNodeOp):
    """Base of the cumulative operations; ``exclusive`` leaves out the element itself."""

    color = "orange"
    axis: int
    reverse: bool = False
    exclusive: bool = False
    cases: ClassVar[tuple[Case, ...]] = (
        Case((3, 4), axis=1),
        Case((3, 4), axis=0, reverse=True),
        Case((3, 4), axis=1, exclusive=True),
        Case((2, 3, 2), axis=1, reverse=True, exclusive=True),
    )


class CumSumNodeOp(CumulativeNodeOp):
    type = "cumsum"

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        return self._sums(x, self.reverse)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (self._sums(adj, not self.reverse),)

    def _sums(self, x: Array, reverse: bool) -> Array:
        terms = shifted(x, self.axis, 0.0, reverse) if self.exclusive else x
        return jax.lax.cumsum(terms, self.axis, reverse=reverse)


@derivative(CumSumNodeOp, "marian")
def _(self: CumSumNodeOp, adj: Array, val: Array, x: Array) -> Gradients:
    # Marian sums the adjoint in place; an exclusive sum then reads its own zeros (on the CPU).
    if self.exclusive:
        return (jnp.zeros_like(adj),)
    return self.backward_ops(adj, val, x)


def _directions(op: str, reverse: bool, exclusive: bool) -> dict[str, bool]:
    """The flags of a running sum, checked."""
    return {"reverse": flag(op, "reverse", reverse), "exclusive": flag(op, "exclusive", exclusive)}


def cumsum(x: Node, axis: int, reverse: bool = False, exclusive: bool = False) -> Node:
    """Running sums along ``axis``: the j-th is over the elements up to j, or before j if ``exclusive``.

    ``reverse`` sums from the end.

    Shape: that of ``x``.
    Gradient: ``cumsum(adj)`` in the other direction, exclusive if this one is.
    Differs: Marian's gradient of an exclusive sum is 0 on the CPU, and so it is in the rule set ``"marian"``.
    Its sums on the CPU are right only if the first axis has the size of the last.
    Source: Marian, ``cumsum``.
    """
    axis = axis_in("cumsum", x, axis)
    return CumSumNodeOp(x, axis=axis, **_directions("cumsum", reverse, exclusive))


class LogCumSumExpNodeOp(CumulativeNodeOp, FloatUnaryNodeOp):
    type = "logcumsumexp"
    # No exclusive cases: an exclusive sum holds -inf, and differences of -inf are NaN.
    cases = (Case((3, 4), axis=1), Case((2, 3, 2), axis=1, reverse=True))
    conventions = (
        Convention([0.0] * 3, adjoint=[1, 2, 4], gradients=([4, 2, 0],), axis=0, exclusive=True),
        Convention(
            [[0.0] * 3], adjoint=[[4, 2, 1]], gradients=([[0, 2, 4]],), axis=1, reverse=True, exclusive=True
        ),
        Convention(
            [[-math.inf, -math.inf, 0.0, -math.inf], [-1000.0, 1000.0, -1000.0, -math.inf]],
            gradients=([[0, 0, 2, 0], [1, 3, 0, 0]],),
            axis=1,
        ),
    )

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        top, total = _running(x, self.axis, self.reverse)
        y = top + jnp.log(total)
        return shifted(y, self.axis, -jnp.inf, self.reverse) if self.exclusive else y

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        # dx_i = sum_j adj_j exp(x_i - y_j) over sums j that include x_i: a running sum from the other end.
        axis, onwards = self.axis, not self.reverse
        if self.exclusive:
            adj = shifted(adj, axis, 0.0, onwards)
        top, total = _running(x, axis, self.reverse)
        top = _finite(top)
        _, slope = jax.lax.associative_scan(_merged, (-top, adj / total), reverse=onwards, axis=axis)
        return (jnp.exp(x - top) * slope,)


Sum = tuple[Array, Array]
"""``sum(a exp(x))`` as the largest x, ``top``, and ``sum(a exp(x - top))``: accurate for extreme x, too."""


def _running(x: Array, axis: int, reverse: bool) -> Sum:
    terms = x, jnp.where(x == -jnp.inf, 0, jnp.ones_like(x))
    top, total = jax.lax.associative_scan(_merged, terms, reverse=reverse, axis=axis)
    return top, jnp.where(total == 0, 1, total)


def _merged(a: Sum, b: Sum) -> Sum:
    top = jnp.maximum(a[0], b[0])
    base = _finite(top)
    return top, a[1] * jnp.exp(a[0] - base) + b[1] * jnp.exp(b[0] - base)


def _finite(x: Array) -> Array:
    return jnp.where(jnp.isfinite(x), x, 0)


def logcumsumexp(
    x: Node, axis: int, reverse: bool = False, exclusive: bool = False, fast: bool = False
) -> Node:
    """``log(cumsum(exp(x)))`` along ``axis`` without overflow; -inf where an exclusive sum is empty.

    ``reverse`` and ``exclusive`` as for ``cumsum``. ``fast`` asks Marian to sum without protection against
    overflow; here it changes nothing.

    Shape: that of ``x``.
    Gradient: ``exp(x_i) sum_j adj_j exp(-y_j)`` over the sums j that include i, without overflow.
    Differs: Marian has no gradient here, and gives -inf for rows far below the largest element of the node.
    Source: Marian, ``logcumsumexp``.
    """
    axis = axis_in("logcumsumexp", x, axis)
    return LogCumSumExpNodeOp(x, axis=axis, **_directions("logcumsumexp", reverse, exclusive))
