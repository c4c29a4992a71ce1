"""Comparisons and logic: 1 where they hold and 0 elsewhere, in the children's element type. No gradient.

As in Marian ``ge`` is "not less", ``le`` "not greater" and ``ne`` "not equal", and equal is "neither less
nor greater": with NaN ``eq``, ``ge`` and ``le`` give 1. ``<``, ``<=``, ``>`` and ``>=`` on nodes are these
functions; ``==`` and ``!=`` are not, see ``eq``.
"""

from __future__ import annotations

from typing import Any

from jax import Array

from ..cases import Case
from ..node import Node, Operand, UnaryNodeOp
from .arithmetic import ElementBinaryNodeOp, number_as_node
from .operands import is_number


class CmpNodeOp(ElementBinaryNodeOp):
    """Base of the comparisons."""

    differentiable = False
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
        a = number_as_node(cls.type, a, b)
    elif is_number(b):
        b = number_as_node(cls.type, b, a)
    return cls(a, b)


def lt(a: Operand, b: Operand) -> Node:
    """``a < b``: 1 where it holds, else 0; 0 with NaN. One of them may be a number.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``lt``.
    """
    return _compare(LtNodeOp, a, b)


def eq(a: Operand, b: Operand) -> Node:
    """1 where ``a`` is neither less nor greater than ``b``, else 0; 1 with NaN. One of them may be a number.

    ``a == b`` compares identity: nodes are keys of dictionaries and are looked up in lists, and an
    elementwise ``==`` would break both.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``eq``.
    """
    return _compare(EqNodeOp, a, b)


def gt(a: Operand, b: Operand) -> Node:
    """``a > b``: 1 where it holds, else 0; 0 with NaN. One of them may be a number.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``gt``.
    """
    return _compare(GtNodeOp, a, b)


def ge(a: Operand, b: Operand) -> Node:
    """``a >= b``: 1 where ``a`` is not less than ``b``, else 0; 1 with NaN. One of them may be a number.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``ge``.
    """
    return _compare(GeNodeOp, a, b)


def ne(a: Operand, b: Operand) -> Node:
    """1 where ``a`` is less or greater than ``b``, else 0; 0 with NaN. One of them may be a number.

    ``a != b`` compares identity; see ``eq``.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``ne``.
    """
    return _compare(NeNodeOp, a, b)


def le(a: Operand, b: Operand) -> Node:
    """``a <= b``: 1 where ``a`` is not greater than ``b``, else 0; 1 with NaN. One of them may be a number.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``le``.
    """
    return _compare(LeNodeOp, a, b)


class LogicalNodeOp(CmpNodeOp):
    """Base of the logic of two nodes, in which everything but 0 is true."""

    cases = (Case((2, 3), (2, 3), domain="mask"), Case((2, 1), (1, 3), domain="mask"))


class LogicalAndNodeOp(LogicalNodeOp):
    type = "and"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return ((a != 0) & (b != 0)).astype(a.dtype)


class LogicalOrNodeOp(LogicalNodeOp):
    type = "or"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return ((a != 0) | (b != 0)).astype(a.dtype)


class LogicalXorNodeOp(LogicalNodeOp):
    type = "xor"

    def forward_ops(self, a: Array, b: Array) -> Array:
        return ((a != 0) ^ (b != 0)).astype(a.dtype)


class LogicalNotNodeOp(UnaryNodeOp):
    type = "not"
    differentiable = False
    cases = (Case((2, 3), domain="mask"),)

    def forward_ops(self, x: Array) -> Array:
        return (x == 0).astype(x.dtype)


def logical_and(a: Node, b: Node) -> Node:
    """1 where neither ``a`` nor ``b`` is 0, else 0.

    Shape: broadcast of both.
    Gradient: none.
    Source: nGraph, ``And``; no counterpart in Marian.
    """
    return LogicalAndNodeOp(a, b)


def logical_or(a: Node, b: Node) -> Node:
    """1 where ``a`` or ``b`` is not 0, else 0.

    Shape: broadcast of both.
    Gradient: none.
    Source: nGraph, ``Or``; no counterpart in Marian.
    """
    return LogicalOrNodeOp(a, b)


def logical_xor(a: Node, b: Node) -> Node:
    """1 where one of ``a`` and ``b`` is 0 and the other is not, else 0.

    Shape: broadcast of both.
    Gradient: none.
    Source: nGraph, ``Xor``; no counterpart in Marian.
    """
    return LogicalXorNodeOp(a, b)


def logical_not(x: Node) -> Node:
    """1 where ``x`` is 0, else 0.

    Shape: that of ``x``.
    Gradient: none.
    Source: nGraph, ``Not``; no counterpart in Marian.
    """
    return LogicalNotNodeOp(x)
