"""The softmax family from its parts."""

from __future__ import annotations

from ...node import Node
from ...ops.arithmetic import MinusNodeOp
from ...ops.elementwise import ExpNodeOp, LogNodeOp
from ...ops.index import ColsNodeOp, GatherNodeOp, RowsNodeOp
from ...ops.reduce import LogSumExpNodeOp, MaxNodeOp, SumNodeOp, logsumexp
from ...ops.shape import ReshapeNodeOp, SliceViewNodeOp, TransposeNodeOp
from ...ops.softmax import LogSoftmaxNodeOp, SoftmaxNodeOp, logsoftmax, softmax
from ...ops.structure import StopGradientNodeOp
from ..patterns import Field, Label, Match, Op, Pattern, Repeat, Skip
from ..rule import over, rule


def along_last(node: Node) -> bool:
    """Whether an operator with an axis works along the last one."""
    rank = len(node.child(0).shape)
    return bool(node.operator.axis % rank == rank - 1)


X, AXIS = Label("x"), Field("axis")
MOVES = (GatherNodeOp, RowsNodeOp, ColsNodeOp, SliceViewNodeOp, ReshapeNodeOp, TransposeNodeOp)
"""Operators that put elements of their first child elsewhere and do nothing to them."""

_TOP = Label("top", Skip(StopGradientNodeOp, Op(MaxNodeOp, X, axis=AXIS)))
_BELOW_TOP = Op(MinusNodeOp, X, _TOP)


@rule(Op(LogNodeOp, Op(SumNodeOp, Op(ExpNodeOp, X), axis=AXIS)))
def logsumexp_of_parts(m: Match) -> Node:
    """``log(sum(exp(x)))`` is ``logsumexp(x)``, which does not overflow."""
    return logsumexp(m.x, m.axis)


@rule(_TOP + Op(LogSumExpNodeOp, _BELOW_TOP, axis=AXIS))
def logsumexp_of_shifted(m: Match) -> Node:
    """``max(x) + logsumexp(x - max(x))`` is ``logsumexp(x)``."""
    return logsumexp(m.x, m.axis)


@rule(Op(LogNodeOp, Op(ExpNodeOp, X)))
def log_of_exp(m: Match) -> Node:
    """``log(exp(x))`` is ``x``."""
    return m.x


@rule(Op(ExpNodeOp, X) / Op(SumNodeOp, Op(ExpNodeOp, X), axis=AXIS))
def softmax_of_parts(m: Match) -> Node:
    """``exp(x) / sum(exp(x))`` is ``softmax(x)``."""
    return softmax(m.x, axis=m.axis)


@rule(Op(SoftmaxNodeOp, _BELOW_TOP, axis=AXIS))
def softmax_of_shifted(m: Match) -> Node:
    """``softmax(x - max(x))`` is ``softmax(x)``, which subtracts the largest itself."""
    return softmax(m.x, axis=m.axis)


@rule(Op(LogSoftmaxNodeOp, Op(MinusNodeOp, X, _TOP)))
def logsoftmax_of_shifted(m: Match) -> Node | None:
    """``logsoftmax(x - max(x))`` is ``logsoftmax(x)``, if the maximum is along the last axis."""
    return logsoftmax(m.x) if m.axis % len(m.x.shape) == len(m.x.shape) - 1 else None


@rule(
    X - Op(LogSumExpNodeOp, X, where=along_last),
    Op(LogNodeOp, Op(SoftmaxNodeOp, X, where=along_last)),
)
def logsoftmax_of_parts(m: Match) -> Node:
    """``x - logsumexp(x, -1)`` and ``log(softmax(x))`` are ``logsoftmax(x)``."""
    return logsoftmax(m.x)


_SOFTMAX: Pattern = Op(SoftmaxNodeOp, X, where=along_last)


@rule(Op(LogNodeOp, Repeat(Label("move", Op(MOVES, Label("next"), ...)), "next", _SOFTMAX)))
def log_of_moved_softmax(m: Match) -> Node:
    """``log(gather(softmax(x), ...))`` is ``gather(logsoftmax(x), ...)``; so for rows, slices, reshapes."""
    moved = logsoftmax(m.x)
    for move, child in zip(reversed(m.move), reversed(m.next), strict=True):
        moved = over(move, child, moved)
    return moved


SOFTMAX = (
    logsumexp_of_parts,
    logsumexp_of_shifted,
    log_of_exp,
    softmax_of_parts,
    softmax_of_shifted,
    logsoftmax_of_shifted,
    logsoftmax_of_parts,
    log_of_moved_softmax,
)
