"""Reshapes and transposes that follow each other."""

from __future__ import annotations

from ...node import Node
from ...ops.shape import ReshapeNodeOp, TransposeNodeOp, reshape, transpose
from ..patterns import Field, Label, Match, Op, Repeat
from ..rule import rule

X = Label("x")
_RESHAPES = Repeat(Op(ReshapeNodeOp, Label("next")), "next", X)


@rule(Op(ReshapeNodeOp, _RESHAPES))
def reshapes(m: Match) -> Node:
    """Several reshapes are the last of them."""
    return reshape(m.x, m.root.shape)


@rule(Op(ReshapeNodeOp, X, where=lambda node: node.shape == node.child(0).shape))
def useless_reshapes(m: Match) -> Node:
    """A reshape to the same shape is none."""
    return m.x


@rule(Op(TransposeNodeOp, Op(TransposeNodeOp, X, axes=Field("first")), axes=Field("second")))
def transposes(m: Match) -> Node:
    """Two transposes are one, or none."""
    axes = tuple(m.first[i] for i in m.second)
    return m.x if axes == tuple(range(len(axes))) else transpose(m.x, axes)


@rule(Op(TransposeNodeOp, X, axes=lambda axes: axes == tuple(range(len(axes)))))
def useless_transposes(m: Match) -> Node:
    """A transpose that leaves the axes in their order is none."""
    return m.x


SHAPES = (reshapes, useless_reshapes, transposes, useless_transposes)
