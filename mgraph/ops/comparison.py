"""Comparisons: 1 where they hold and 0 elsewhere, in the children's own element type. No gradient.

As in Marian ``ge`` is "not less", ``le`` "not greater" and ``ne`` "not equal", and equal is "neither less
nor greater": with NaN ``eq``, ``ge`` and ``le`` give 1. ``<``, ``<=``, ``>`` and ``>=`` on nodes are these
functions; ``==`` and ``!=`` are not, see ``eq``.
"""

from __future__ import annotations

from typing import Any

from jax import Array

from ..cases import Case
from ..node import Node
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


def lt(a: Any, b: Any) -> Node:
    """``a < b``: 1 where it holds, else 0; 0 with NaN. One of them may be a number.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``lt``.
    """
    return _compare(LtNodeOp, a, b)


def eq(a: Any, b: Any) -> Node:
    """1 where ``a`` is neither less nor greater than ``b``, else 0; 1 with NaN. One of them may be a number.

    ``a == b`` compares identity: nodes are keys of dictionaries and are looked up in lists, and an
    elementwise ``==`` would break both.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``eq``.
    """
    return _compare(EqNodeOp, a, b)


def gt(a: Any, b: Any) -> Node:
    """``a > b``: 1 where it holds, else 0; 0 with NaN. One of them may be a number.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``gt``.
    """
    return _compare(GtNodeOp, a, b)


def ge(a: Any, b: Any) -> Node:
    """``a >= b``: 1 where ``a`` is not less than ``b``, else 0; 1 with NaN. One of them may be a number.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``ge``.
    """
    return _compare(GeNodeOp, a, b)


def ne(a: Any, b: Any) -> Node:
    """1 where ``a`` is less or greater than ``b``, else 0; 0 with NaN. One of them may be a number.

    ``a != b`` compares identity; see ``eq``.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``ne``.
    """
    return _compare(NeNodeOp, a, b)


def le(a: Any, b: Any) -> Node:
    """``a <= b``: 1 where ``a`` is not greater than ``b``, else 0; 1 with NaN. One of them may be a number.

    Shape: broadcast of both.
    Gradient: none.
    Source: Marian, ``le``.
    """
    return _compare(LeNodeOp, a, b)
