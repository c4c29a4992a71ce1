"""Comparisons: 1 where they hold and 0 elsewhere, in the children's own element type. No gradient.

As in Marian ``ge`` is "not less", ``le`` "not greater" and ``ne`` "not equal", and equal is "neither less
nor greater": with NaN ``eq``, ``ge`` and ``le`` give 1. One operand may be a number.
Source: Marian, ``CmpNodeOp``.
"""

from __future__ import annotations

from typing import Any

from jax import Array

from ..cases import Case
from ..node import Node
from .arithmetic import ElementBinaryNodeOp
from .operands import constant_for, is_number


class CmpNodeOp(ElementBinaryNodeOp):
    """Base of the comparisons."""

    cases = (Case((2, 3), (2, 3), domain="distinct"), Case((2, 1), (1, 3), domain="distinct"))


class LtNodeOp(CmpNodeOp):
    type = "lt"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return (a < b).astype(a.dtype)


class EqNodeOp(CmpNodeOp):
    type = "eq"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return (~((a < b) | (a > b))).astype(a.dtype)


class GtNodeOp(CmpNodeOp):
    type = "gt"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return (a > b).astype(a.dtype)


class GeNodeOp(CmpNodeOp):
    type = "ge"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return (~(a < b)).astype(a.dtype)


class NeNodeOp(CmpNodeOp):
    type = "ne"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return ((a < b) | (a > b)).astype(a.dtype)


class LeNodeOp(CmpNodeOp):
    type = "le"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return (~(a > b)).astype(a.dtype)


def _compare(cls: type[CmpNodeOp], a: Any, b: Any) -> Node:
    if is_number(a):
        a = constant_for(b, a)
    elif is_number(b):
        b = constant_for(a, b)
    return cls(a, b)


def lt(a: Any, b: Any) -> Node:
    """1 where ``a < b``, else 0; broadcast."""
    return _compare(LtNodeOp, a, b)


def eq(a: Any, b: Any) -> Node:
    """1 where ``a`` is neither less nor greater than ``b``, else 0; broadcast."""
    return _compare(EqNodeOp, a, b)


def gt(a: Any, b: Any) -> Node:
    """1 where ``a > b``, else 0; broadcast."""
    return _compare(GtNodeOp, a, b)


def ge(a: Any, b: Any) -> Node:
    """1 where ``a`` is not less than ``b``, else 0; broadcast."""
    return _compare(GeNodeOp, a, b)


def ne(a: Any, b: Any) -> Node:
    """1 where ``a`` is less or greater than ``b``, else 0; broadcast."""
    return _compare(NeNodeOp, a, b)


def le(a: Any, b: Any) -> Node:
    """1 where ``a`` is not greater than ``b``, else 0; broadcast."""
    return _compare(LeNodeOp, a, b)
