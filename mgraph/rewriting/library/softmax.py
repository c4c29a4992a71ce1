"""Rules that recognize softmax, its relatives, and losses in their parts."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ...inits import from_tensor
from ...node import Node
from ...ops.arithmetic import DivNodeOp, MinusNodeOp, MultNodeOp, ScalarMultNodeOp, mult, plus
from ...ops.elementwise import ExpNodeOp, LogNodeOp
from ...ops.index import ColsNodeOp, GatherNodeOp, RowsNodeOp, gather
from ...ops.reduce import LogSumExpNodeOp, MaxNodeOp, MeanNodeOp, ScalarProductNodeOp, SumNodeOp, logsumexp
from ...ops.shape import ReshapeNodeOp, SliceViewNodeOp, TransposeNodeOp, reshape
from ...ops.softmax import (
    CrossEntropyNodeOp,
    LogSoftmaxNodeOp,
    SoftmaxNodeOp,
    cross_entropy,
    logsoftmax,
    softmax,
)
from ...ops.structure import StopGradientNodeOp, cast
from ..patterns import Any, Constant, Field, Label, Match, Op, Or, Pattern, Repeat, Skip, known_value
from ..rule import over, rule


def along_last(node: Node) -> bool:
    """Whether an operator with an axis works along the last axis."""
    rank = len(node.child(0).shape)
    return bool(node.operator.axis % rank == rank - 1)


X, AXIS = Label("x"), Field("axis")
MOVES = (GatherNodeOp, RowsNodeOp, ColsNodeOp, SliceViewNodeOp, ReshapeNodeOp, TransposeNodeOp)
"""Operators that only move or select elements of their first child."""

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
    """``softmax(x - max(x))`` is ``softmax(x)``, which itself subtracts the largest element."""
    return softmax(m.x, axis=m.axis)


@rule(Op(LogSoftmaxNodeOp, _BELOW_TOP))
def logsoftmax_of_shifted(m: Match) -> Node | None:
    """``logsoftmax(x - max(x))`` is ``logsoftmax(x)``, if the maximum is along the last axis."""
    return logsoftmax(m.x) if m.axis % len(m.x.shape) == len(m.x.shape) - 1 else None


@rule(X - Op(LogSumExpNodeOp, X, where=along_last), Op(LogNodeOp, Op(SoftmaxNodeOp, X, where=along_last)))
def logsoftmax_of_parts(m: Match) -> Node:
    """``x - logsumexp(x, -1)`` and ``log(softmax(x))`` are ``logsoftmax(x)``."""
    return logsoftmax(m.x)


_SOFTMAX: Pattern = Op(SoftmaxNodeOp, X, where=along_last)


@rule(Op(LogNodeOp, Repeat(Label("move", Op(MOVES, Label("next"), ...)), "next", _SOFTMAX)))
def log_of_moved_softmax(m: Match) -> Node:
    """``log(gather(softmax(x), ...))`` is ``gather(logsoftmax(x), ...)``; also for rows, slices, reshapes."""
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


LABELS, Q = Label("labels"), Constant("q")
_LOGSOFTMAX: Pattern = Op(LogSoftmaxNodeOp, X)


def counts_from_zero(labels: Node) -> bool:
    """Whether no label can be negative; ``gather`` would count a negative label from the end."""
    values = known_value(labels)
    if values is not None and values.size:
        return bool(values.min() >= 0)
    return labels.value_type.value.startswith("uint")


def picks_labels(node: Node) -> bool:
    """Whether a gather picks one element of each row, a label that ``cross_entropy`` takes."""
    x, labels = node.children
    one_each = labels.shape == (*x.shape[:-1], 1)
    return along_last(node) and one_each and counts_from_zero(labels)


def keeps_rows(node: Node) -> bool:
    """Whether a reshape leaves the last axis alone."""
    return node.shape[-1:] == node.child(0).shape[-1:]


def sums_rows(node: Node) -> bool:
    """Whether a scalar product is along the last axis."""
    rank = max(len(child.shape) for child in node.children)
    return bool(node.operator.axis % rank == rank - 1)


class Targets(NamedTuple):
    """The label of each row of a constant, and its label smoothing."""

    labels: np.ndarray
    smoothing: float

    def node(self, x: Node) -> Node:
        """The labels in the graph of ``x``."""
        return x.graph.constant(self.labels.shape, from_tensor(self.labels), "uint32")


def targets(q: np.ndarray, rows: tuple[int, ...]) -> Targets | None:
    """The labels and ``a`` if each row of ``q``, broadcast to ``rows``, is ``(1 - a) onehot + a / V``."""
    if not rows or np.broadcast_shapes(q.shape, rows) != rows or rows[-1] < 2:
        return None
    wide = np.broadcast_to(q.astype(np.float64), rows).reshape(-1, rows[-1])
    if not wide.size:
        return None
    labels = wide.argmax(-1)
    gold, rest = wide.max(-1), np.delete(wide[0], labels[0])[0]
    others = np.arange(rows[-1]) != labels[:, None]
    width = rows[-1]
    close = float(jnp.finfo(q.dtype).eps)
    fits = np.all(wide[others] == rest) and np.all(gold == gold[0]) and gold[0] > rest >= 0
    if not fits or abs(gold[0] + (width - 1) * rest - 1) > 4 * close:
        return None
    return Targets(labels.astype(np.uint32).reshape(*rows[:-1], 1), float(rest * width))


_PICKED = Label(
    "picked", Op(GatherNodeOp, Skip(ReshapeNodeOp, _LOGSOFTMAX, where=keeps_rows), LABELS, where=picks_labels)
)


def dotted(x: Pattern) -> Pattern:
    """The sum of each row of a constant times ``x``."""
    return Or(
        Op(SumNodeOp, Q * x, where=along_last),
        Op(ScalarProductNodeOp, Q, x, where=sums_rows),
        Op(ScalarProductNodeOp, x, Q, where=sums_rows),
    )


_NEXT = Label("next")
_LINEAR = Label(
    "step",
    Or(
        Op((SumNodeOp, MeanNodeOp, ReshapeNodeOp, TransposeNodeOp, ScalarMultNodeOp), _NEXT),
        Op((MultNodeOp, DivNodeOp, ScalarProductNodeOp), _NEXT, Any()),
        Op(ScalarProductNodeOp, Any(), _NEXT),
    ),
)
_LIKELIHOOD = Repeat(_LINEAR, "next", Or(_PICKED, Label("picked", dotted(_LOGSOFTMAX))), least=0)
"""Log probabilities of the labels, or linear functions of them: sums, means, weights, masks."""


def loss_of(m: Match) -> Node | None:
    """The cross entropy whose negative is ``m.picked``, in its shape and type."""
    x, picked = m.x, m.picked
    if isinstance(picked, GatherNodeOp):
        loss = cross_entropy(x, m.labels)
    else:
        found = targets(m.q.array, x.shape)
        if found is None:
            return None
        loss = cross_entropy(x, found.node(x), found.smoothing)
    return reshape(cast(loss, picked.value_type), picked.shape)


def negated(m: Match) -> Node | None:
    """The negative of a likelihood: the same sums and weights over the loss."""
    loss = loss_of(m)
    if loss is None:
        return None
    steps = zip(m.bindings.get("step", ()), m.bindings.get("next", ()), strict=True)
    for step, child in reversed(list(steps)):
        loss = over(step, child, loss)
    return loss


@rule(-_LIKELIHOOD, alone=("picked", "step"))
def cross_entropy_of_logsoftmax(m: Match) -> Node | None:
    """``-gather(logsoftmax(x), labels)`` and ``-sum(onehot * logsoftmax(x))`` are cross entropies, also with
    sums, means, weights and masks in between."""
    return negated(m)


@rule(Op(ScalarMultNodeOp, _LIKELIHOOD, c=Field("c", lambda c: c < 0)), alone=("picked", "step"))
def cross_entropy_with_a_negative_weight(m: Match) -> Node | None:
    """``gather(logsoftmax(x), labels) * -0.5`` is ``cross_entropy(x, labels) * 0.5``."""
    loss = negated(m)
    return None if loss is None else mult(loss, -m.c)


@rule(Label("before") - _LIKELIHOOD, alone=("picked", "step"))
def cross_entropy_subtracted(m: Match) -> Node | None:
    """``y - gather(logsoftmax(x), labels)`` is ``y + cross_entropy(x, labels)``."""
    loss = negated(m)
    return None if loss is None else plus(m.before, loss)


@rule(Op(LogSumExpNodeOp, X, where=along_last) - Op(GatherNodeOp, X, LABELS, where=picks_labels))
def cross_entropy_of_logsumexp(m: Match) -> Node:
    """``logsumexp(x, -1) - gather(x, -1, labels)`` is ``cross_entropy(x, labels)``."""
    return cast(cross_entropy(m.x, m.labels), m.root.value_type)


@rule(Op(LogNodeOp, dotted(_SOFTMAX)))
def log_of_picked_softmax(m: Match) -> Node | None:
    """``log(sum(onehot * softmax(x)))`` is ``gather(logsoftmax(x), labels)``."""
    found = targets(m.q.array, m.x.shape)
    if found is None or found.smoothing:
        return None
    return gather(logsoftmax(m.x), -1, found.node(m.x))


_LOSS = Op(CrossEntropyNodeOp, X, LABELS, alpha=0, to=Field("to"))
_ALL = Label("all", Op((MeanNodeOp, SumNodeOp), _LOGSOFTMAX, where=along_last))
_SPREAD = Op(ScalarMultNodeOp, _ALL, c=Field("spread"))
_WEIGHTED = Op(ScalarMultNodeOp, _LOSS, c=Field("weight"))


@rule(Label("minus", _WEIGHTED - _SPREAD), _WEIGHTED + _SPREAD)
def label_smoothing(m: Match) -> Node | None:
    """``(1 - a) cross_entropy(x, labels) - a mean(logsoftmax(x))`` is ``cross_entropy(x, labels, a)``."""
    spread = m.spread if "minus" in m.bindings else -m.spread
    if isinstance(m.bindings["all"], SumNodeOp):
        spread *= m.x.shape[-1]
    if spread <= 0 or abs(m.weight + spread - 1) > 1e-15:
        return None
    return cross_entropy(m.x, m.labels, spread, m.to)


@rule(-(Op(ScalarMultNodeOp, _PICKED, c=Field("weight")) + _SPREAD), alone=("picked",))
def label_smoothing_of_logsoftmax(m: Match) -> Node | None:
    """``-((1 - a) gather(y, labels) + a mean(y))`` with ``y = logsoftmax(x)`` is
    ``cross_entropy(x, labels, a)``."""
    spread = m.spread * (m.x.shape[-1] if isinstance(m.bindings["all"], SumNodeOp) else 1)
    if spread <= 0 or abs(m.weight + spread - 1) > 1e-15 or m.picked.shape != (*m.x.shape[:-1], 1):
        return None
    return cast(cross_entropy(m.x, m.labels, spread), m.root.value_type)


LOSSES = (
    cross_entropy_of_logsoftmax,
    cross_entropy_with_a_negative_weight,
    cross_entropy_subtracted,
    cross_entropy_of_logsumexp,
    log_of_picked_softmax,
    label_smoothing,
    label_smoothing_of_logsoftmax,
)
