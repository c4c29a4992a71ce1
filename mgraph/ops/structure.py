"""Operators about the graph itself: where gradients stop, element types, several outputs, choices."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import Array

from ..arrays import real, whole
from ..cases import Case, Convention
from ..errors import ArgumentError
from ..inits import Initializer, from_vector
from ..leaves import ConstantNode
from ..node import NaryNodeOp, Node, UnaryNodeOp
from ..places import here
from ..tracing.adjoints import clip_adjoint, clipped
from ..types import Type, TypeName, as_type
from .operands import Gradients, node, nodes_in


class StopGradientNodeOp(UnaryNodeOp):
    type = "stopGradient"
    color = "grey"
    differentiable = False
    gradient_is_derivative = False
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return jax.lax.stop_gradient(x)


def stop_gradient(x: Node) -> Node:
    """``x`` as a constant: same value, not trainable. Other uses of ``x`` keep their gradient.

    Shape: that of ``x``.
    Gradient: none.
    Source: Marian, ``stopGradient``.
    """
    return StopGradientNodeOp(x)


class ClipGradientNodeOp(UnaryNodeOp):
    type = "clipGradient"
    color = "grey"
    gradient_is_derivative = False
    c: float
    runtime_fields = ("c",)
    cases = (Case((2, 3), c=100.0),)
    conventions = (Convention([1.0, 1.0, 1.0], adjoint=[-3.0, 0.1, 2.0], gradients=([-2, 0.1, 2],), c=2.0),)

    def forward_ops(self, x: Array) -> Array:
        return clip_adjoint(self.c, x)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (clipped(self.c, adj),)


def clip_gradient(x: Node, c: float) -> Node:
    """``x``; the gradient that arrives through this node is cut elementwise to ``[-c, c]``.

    ``c = 0`` returns ``x`` itself. ``ArgumentError`` for a negative bound.

    Shape: that of ``x``.
    Gradient: ``adj`` cut to ``[-c, c]``.
    Differs: Marian cuts, in place, all gradients that have reached ``x`` so far; here other uses of ``x``
    keep theirs.
    Source: Marian, ``clipGradient``.
    """
    c = real("clip_gradient", "c", c)
    if c < 0:
        raise ArgumentError(f"clip_gradient: expected a bound of at least 0, got {c}{here()}")
    return node("clip_gradient", x) if c == 0 else ClipGradientNodeOp(x, c=c)


class CastNodeOp(UnaryNodeOp):
    type = "cast"
    to: Type
    cases = (Case((2, 3), to=Type.float64),)

    def forward_ops(self, x: Array) -> Array:
        return x.astype(self.to.dtype)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj.astype(x.dtype),)


def cast(x: Node, to: TypeName = Type.float32) -> Node:
    """``x`` in the element type ``to``, a ``Type`` or its name; ``x`` itself if it has that type.

    ``ElementTypeError`` for an unknown type.

    Shape: that of ``x``.
    Gradient: ``adj`` cast back; none to or from integers.
    Source: Marian, ``cast``.
    """
    to = as_type(to)
    if node("cast", x).value_type is to:
        return x
    return CastNodeOp(x if to.is_float else stop_gradient(x), to=to)


class TupleViewNodeOp(UnaryNodeOp):
    """One output of a node with several: ``TupleViewNodeOp(node, index=i)``.

    Selecting needs no rule: JAX knows that the other outputs have no adjoint, where a rule would have to
    return arrays of zeros.
    """

    type = "tupleView"
    color = "grey"
    composite = True
    mixed_types = True
    index: int

    def forward_ops(self, x: tuple[Array, ...]) -> Array:
        return x[self.index]


def get(outputs: Node | Sequence[Node], i: int) -> Node:
    """The i-th of several outputs: of a tuple that ``topk``, ``sort``, ``argmax`` or ``argmin`` returns, or
    of a node with several outputs. ``ArgumentError`` if there is no such output.

    Shape: that of the output.
    Gradient: ``adj`` for that output; none for integers.
    Source: Marian, ``get``.
    """
    parts, i = outputs.spec if isinstance(outputs, Node) else outputs, whole("get", "i", i)
    if not isinstance(parts, Sequence) or not 0 <= i < len(parts):
        found = f"{len(parts)} outputs" if isinstance(parts, Sequence) else f"one output, {outputs!r}"
        raise ArgumentError(f"get: there is no output {i} of {found}{here()}")
    if not isinstance(outputs, Node):
        return node("get", outputs[i])
    view: Node = TupleViewNodeOp(outputs, index=i)
    return view if view.value_type.is_float else stop_gradient(view)


class ChooseNodeOp(NaryNodeOp):
    type = "choose"
    color = "grey"
    mixed_types = True
    index: int
    cases = (Case((2, 3), (4,), index=1), Case((2, 3), (2, 3), (5, 1), index=0))

    def forward_ops(self, *xs: Array) -> Array:
        return xs[self.index]

    def backward_ops(self, adj: Array, val: Array, *xs: Array) -> Gradients:
        return tuple(adj if i == self.index else None for i in range(len(xs)))


def choose(nodes: Sequence[Node], index: int) -> Node:
    """``nodes[index]``; the other nodes are treated as used, so that they are not tops of the graph.

    For graphs that build alternatives and take one. The nodes may differ in shape and element type.
    ``ArgumentError`` if there is no such node.

    Shape: that of the chosen node.
    Gradient: ``adj`` for the chosen node, none for the others.
    Source: Marian, ``choose``.
    """
    given, index = nodes_in("choose", nodes), whole("choose", "index", index)
    if not 0 <= index < len(given):
        raise ArgumentError(f"choose: there is no node {index} of {len(given)}{here()}")
    chosen: Node = ChooseNodeOp(*given, index=index)
    return chosen if chosen.value_type.is_float else stop_gradient(chosen)


def debug(x: Node, message: str = "") -> Node:
    """``x``, whose value and gradient are printed in Marian's layout whenever ``graph.forward()``,
    ``backward()`` or ``backprop()`` computes them. It is not part of a ``graph.function``.

    Shape: that of ``x``.
    Gradient: ``adj``, as if it were not there.
    Source: Marian, ``debug``.
    """
    return node("debug", x).debug(message)


def checkpoint(x: Node) -> Node:
    """``x``, kept while other values are recomputed when the graph checkpoints gradients.

    Shape: that of ``x``.
    Gradient: ``adj``, as if it were not there.
    Source: Chen et al. 2016; Marian, ``checkpoint``.
    """
    return node("checkpoint", x).mark_checkpoint()


def constant_like(x: Node, init: Initializer | Sequence[float]) -> ConstantNode:
    """A constant of ``x``'s shape and element type, filled by an initializer or by numbers, row-major.

    The numbers are a list, nested or not, or an array; ``ShapeError`` unless there is one for each element of
    ``x``.

    Shape: that of ``x``.
    Gradient: none.
    Source: Marian, ``constant_like``.
    """
    if not isinstance(init, Initializer):
        init = from_vector(init)
    return node("constant_like", x).graph.constant(x.shape, init, x.value_type)
