"""Operators about the graph itself: where gradients stop, element types, several outputs, dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..cases import Case
from ..errors import ArgumentError
from ..inits import Initializer, from_vector
from ..leaves import ConstantNode
from ..node import Node, UnaryNodeOp
from ..shape import Shape
from ..trace import clip_adjoint
from ..types import Type, as_type
from .arithmetic import MultNodeOp
from .operands import Gradients, axis_in, is_number, node


class StopGradientNodeOp(UnaryNodeOp):
    type = "stopGradient"
    color = "grey"
    gradient_is_derivative = False
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jax.lax.stop_gradient(x)


def stop_gradient(x: Node) -> Node:
    """``x`` as a constant: same value, no gradient, not trainable.

    Other uses of ``x`` keep their gradient. Source: Marian, ``stopGradient``.
    """
    return StopGradientNodeOp(x)


class ClipGradientNodeOp(UnaryNodeOp):
    type = "clipGradient"
    color = "grey"
    gradient_is_derivative = False
    c: float
    cases = (Case((2, 3), c=100.0),)

    def forward_ops(self, x: Array) -> Array:
        return clip_adjoint(self.c, x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.clip(adj, -self.c, self.c),)


def clip_gradient(x: Node, c: float) -> Node:
    """``x``; the gradient that arrives through this node is cut elementwise to ``[-c, c]``.

    ``c = 0`` returns ``x`` itself. Marian cuts, in place, all gradients that have reached ``x`` so far;
    here other uses of ``x`` keep theirs. Source: Marian, ``clipGradient``.
    """
    return x if c == 0 else ClipGradientNodeOp(x, c=float(c))


class CastNodeOp(UnaryNodeOp):
    type = "cast"
    to: Type
    cases = (Case((2, 3), to=Type.float64),)

    def forward_ops(self, x: Array) -> Array:
        return x.astype(self.to.dtype)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj.astype(x.dtype),)


def cast(x: Node, to: Any = Type.float32) -> Node:
    """``x`` in the element type ``to``, a ``Type`` or its name; ``x`` itself if it has that type.

    The gradient is cast back; none flows through an integer type. ``ElementTypeError`` for an unknown
    type. Source: Marian, ``cast``.
    """
    to = as_type(to)
    if node("cast", x).value_type is to:
        return x
    return CastNodeOp(x if to.is_float else stop_gradient(x), to=to)


class TupleViewNodeOp(UnaryNodeOp):
    """One output of a node with several: ``TupleViewNodeOp(node, index=i)``.

    Selecting needs no rule of its own: JAX then knows that the other outputs have no adjoint at all,
    where a rule would have to say so with arrays of zeros.
    """

    type = "tupleView"
    color = "grey"
    composite = True
    index: int

    def check_types(self, *specs: Any) -> None:
        """The outputs of a node may differ in element type."""

    def forward_ops(self, x: tuple[Array, ...]) -> Array:
        return x[self.index]

    def evaluate(self, rule_set: str, trained: tuple[bool, ...], values: tuple[Any, ...]) -> Any:
        """The output, under any rule set."""
        return self.forward_ops(*values)


def debug(x: Node, message: str = "") -> Node:
    """``x``, whose value and gradient are printed in Marian's layout whenever a run computes them."""
    return x.debug(message)


def checkpoint(x: Node) -> Node:
    """``x``, kept while other values are recomputed when the graph checkpoints gradients."""
    return x.mark_checkpoint()


def constant_like(x: Node, init: Initializer | Sequence[float]) -> ConstantNode:
    """A constant of ``x``'s shape and element type, filled by an initialiser or a list of numbers."""
    if not isinstance(init, Initializer):
        init = from_vector(init)
    return x.graph.constant(x.shape, init, x.value_type)


def dropout(
    x: Node,
    p: float | Node | None,
    shape: Shape | None = None,
    *,
    axes: Sequence[int] | None = None,
) -> Node:
    """``x * mask`` with a random mask: 0 with probability ``p``, else ``1 / (1 - p)``.

    ``p`` may be a mask itself, a node that broadcasts to ``x``. The mask has ``x``'s shape, or ``shape``, or
    ``x``'s sizes along ``axes`` and 1 elsewhere; what it lacks is shared. ``p = 0`` or no mask returns
    ``x``. Each call makes a mask of its own, drawn anew at each run. Source: Marian, ``dropout``.
    """
    if p is None:
        return x
    if isinstance(p, Node):
        return MultNodeOp(x, p)
    if not is_number(p) or not 0 <= p < 1:
        raise ArgumentError(f"dropout expects a probability 0 <= p < 1 or a mask, got {p!r}")
    if p == 0:
        return x
    if shape is None:
        kept = range(len(x.shape)) if axes is None else {axis_in("dropout", x, a) for a in axes}
        shape = tuple(n if i in kept else 1 for i, n in enumerate(x.shape))
    return MultNodeOp(x, x.graph.dropout_mask(p, shape, x.value_type))
