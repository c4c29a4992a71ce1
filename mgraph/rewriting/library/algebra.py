"""Scalar chains and signs."""

from __future__ import annotations

from ...node import Node
from ...ops.arithmetic import NegNodeOp, ScalarAddNodeOp, ScalarMultNodeOp, minus, mult, negate, plus
from ..patterns import Constant, Field, Label, Match, Op
from ..rule import rule
from .numbers import product, sum_of

X, A, B = Label("x"), Label("a"), Label("b")


def single(array: object) -> bool:
    """Whether a constant is one number: masks of ones are no ones, but change from batch to batch."""
    return getattr(array, "size", 0) == 1


ONE, ZERO = Constant(value=1, where=single), Constant(value=0, where=single)


@rule(Op(ScalarMultNodeOp, Op(ScalarMultNodeOp, X, c=Field("first")), c=Field("second")))
def scalar_products(m: Match) -> Node | None:
    """``(x * 2) * 3`` is ``x * 6``."""
    c = product(m.x, m.first, m.second)
    return None if c is None else mult(m.x, c)


@rule(Op(ScalarAddNodeOp, Op(ScalarAddNodeOp, X, c=Field("first")), c=Field("second")))
def scalar_sums(m: Match) -> Node | None:
    """``(x + 1) + 2`` is ``x + 3``."""
    c = sum_of(m.x, m.first, m.second)
    return None if c is None else plus(m.x, c)


@rule(
    Op(ScalarMultNodeOp, X, c=1),
    Op(ScalarAddNodeOp, X, c=0),
    X * ONE,
    X + ZERO,
    X - ZERO,
    X / ONE,
)
def neutral_numbers(m: Match) -> Node | None:
    """``x * 1``, ``x / 1``, ``x + 0`` and ``x - 0`` are ``x``, if nothing is broadcast."""
    return m.x if m.x.spec is m.root.spec else None


@rule(Op(ScalarMultNodeOp, X, c=-1))
def minus_one(m: Match) -> Node:
    """``x * -1`` is ``-x``."""
    return negate(m.x)


@rule(Op(NegNodeOp, -X))
def double_negation(m: Match) -> Node:
    """``-(-x)`` is ``x``."""
    return m.x


@rule(
    -Op(ScalarMultNodeOp, X, c=Field("c")),
    Op(ScalarMultNodeOp, Op(NegNodeOp, X), c=Field("c")),
)
def negated_products(m: Match) -> Node:
    """``-(x * 2)`` and ``(-x) * 2`` are ``x * -2``."""
    return mult(m.x, -m.c)


@rule(-(A - B))
def negated_differences(m: Match) -> Node:
    """``-(a - b)`` is ``b - a``."""
    return minus(m.b, m.a)


@rule(A + -B)
def added_negations(m: Match) -> Node:
    """``a + (-b)`` is ``a - b``."""
    return minus(m.a, m.b)


@rule(A - -B)
def subtracted_negations(m: Match) -> Node:
    """``a - (-b)`` is ``a + b``."""
    return plus(m.a, m.b)


ALGEBRA = (
    scalar_products,
    scalar_sums,
    neutral_numbers,
    minus_one,
    double_negation,
    negated_products,
    negated_differences,
    added_negations,
    subtracted_negations,
)
