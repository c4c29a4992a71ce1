"""Cumulative sums along an axis."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ..cases import Case
from ..node import Node, UnaryNodeOp
from ..rules import derivative
from .operands import FloatUnaryNodeOp, Gradients, accumulable, axis_in
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

    def forward_ops(self, x: Array) -> Array:
        return _cumsum(x, self.axis, self.reverse, self.exclusive)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (_cumsum(adj, self.axis, not self.reverse, self.exclusive),)


@derivative(CumSumNodeOp, "marian")
def _(self: CumSumNodeOp, adj: Array, val: Array, x: Array) -> Gradients:
    # Marian sums the adjoint in place; an exclusive sum then reads its own zeros (on the CPU).
    if self.exclusive:
        return (jnp.zeros_like(adj),)
    return self.backward_ops(adj, val, x)


def _cumsum(x: Array, axis: int, reverse: bool, exclusive: bool) -> Array:
    terms = shifted(x, axis, 0.0, reverse) if exclusive else x
    return jax.lax.cumsum(accumulable(terms), axis, reverse=reverse).astype(x.dtype)


def cumsum(x: Node, axis: int, reverse: bool = False, exclusive: bool = False) -> Node:
    """Running sums along ``axis``: the j-th is over elements up to j, or before j if ``exclusive``.

    ``reverse`` sums from the end. Gradient: the running sum of the adjoint in the other direction.
    Marian's gradient of an exclusive sum is 0 on the CPU, in the rule set ``"marian"`` too.
    Source: Marian, ``cumsum``.
    """
    axis = axis_in("cumsum", x, axis)
    return CumSumNodeOp(x, axis=axis, reverse=bool(reverse), exclusive=bool(exclusive))


class LogCumSumExpNodeOp(CumulativeNodeOp, FloatUnaryNodeOp):
    type = "logcumsumexp"
    # An exclusive sum holds -inf, which no difference can be taken of.
    cases = (Case((3, 4), axis=1), Case((2, 3, 2), axis=1, reverse=True))

    def forward_ops(self, x: Array) -> Array:
        return _logcumsumexp(x, self.axis, self.reverse, self.exclusive)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        # dx_i = sum_j adj_j exp(x_i - y_j) over the sums j that hold x_i. With sums that run upwards it is
        # exp(x_i - y_i) r_i, where r_i = adj_i + exp(y_i - y_(i+1)) r_(i+1): no exponent is positive.
        wide, y, adj = accumulable(x), accumulable(val), accumulable(adj)
        following = shifted(y, self.axis, jnp.inf, not self.reverse)
        decay = jnp.exp(jnp.where(y == -jnp.inf, y, y - following))
        _, r = jax.lax.associative_scan(_chain, (decay, adj), reverse=not self.reverse, axis=self.axis)
        if self.exclusive:
            y, r = following, shifted(r, self.axis, 0.0, not self.reverse)
        return ((jnp.exp(jnp.where(wide == -jnp.inf, wide, wide - y)) * r).astype(x.dtype),)


def _chain(later: tuple[Array, Array], earlier: tuple[Array, Array]) -> tuple[Array, Array]:
    """Two steps of ``r -> adj + decay r`` as one."""
    return later[0] * earlier[0], earlier[1] + earlier[0] * later[1]


def _logcumsumexp(x: Array, axis: int, reverse: bool, exclusive: bool) -> Array:
    terms = shifted(x, axis, -jnp.inf, reverse) if exclusive else x
    return jax.lax.cumlogsumexp(accumulable(terms), axis, reverse=reverse).astype(x.dtype)


def logcumsumexp(
    x: Node, axis: int, reverse: bool = False, exclusive: bool = False, fast: bool = False
) -> Node:
    """``log(cumsum(exp(x)))`` along ``axis`` without overflow; -inf where an exclusive sum is empty.

    ``fast`` asks Marian for a sum without protection against overflow; here it changes nothing.
    Gradient: ``exp(x_i) sum_j adj_j exp(-y_j)`` over the sums j that hold i. Marian has none.
    Source: Marian, ``logcumsumexp``.
    """
    axis = axis_in("logcumsumexp", x, axis)
    return LogCumSumExpNodeOp(x, axis=axis, reverse=bool(reverse), exclusive=bool(exclusive))
