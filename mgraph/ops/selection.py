"""Selection of one of two nodes, element by element, and of one of several classes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import whole
from ..cases import Case
from ..errors import ElementTypeError
from ..node import NaryNodeOp, Node, UnaryNodeOp
from ..places import here
from ..specs import Spec, Specs, spec_of
from ..types import Type, as_type
from .arithmetic import mult, number_as_node
from .operands import Gradients, as_positions, is_number, node, refusal


class SelectNodeOp(NaryNodeOp):
    """Children: the condition, the node taken where it holds, the node taken elsewhere."""

    type = "select"
    color = "yellow"
    broadcasts = True
    cases = (
        Case((2, 3), (2, 3), (2, 3), domain=("index:2", "real", "real")),
        Case((4, 1), (3,), (4, 3), domain=("index:2", "real", "real")),
    )

    def check_types(self, condition: Spec, *choices: Spec) -> None:
        super().check_types(*choices)

    def forward_ops(self, condition: Array, a: Array, b: Array) -> Array:
        return jnp.where(condition != 0, a, b)

    def backward_ops(self, adj: Array, val: Array, condition: Array, a: Array, b: Array) -> Gradients:
        holds = condition != 0
        return None, jnp.where(holds, adj, 0), jnp.where(holds, 0, adj)


def select(condition: Node, a: Any, b: Any) -> Node:
    """``a`` where the condition is not 0, else ``b``; numpy's ``where``. One of the two may be a number.

    The condition may have any element type; comparisons make one: ``select(x > 0, x, 0)``. Elements that are
    not selected affect neither the value nor the gradients, even if they are NaN. ``ElementTypeError`` if
    both are numbers or have different element types.

    Shape: broadcast of all three.
    Gradient: ``adj`` for ``a`` where the condition holds, for ``b`` elsewhere; none for the condition.
    Source: nGraph, ``Select``; no counterpart in Marian.
    """
    node("select", condition)
    if is_number(a) and is_number(b):
        raise ElementTypeError(
            f"select: expected a node among the choices, got the numbers {a!r} and {b!r}; "
            f"mgraph.constant_like(condition, init) makes one{here()}"
        )
    if is_number(a):
        a = number_as_node("select", a, b)
    elif is_number(b):
        b = number_as_node("select", b, a)
    return SelectNodeOp(condition, a, b)


def _chosen(x: Node) -> Node:
    return mult(x, one_hot(x.graph.indices([3, 0, 9]), 4, type=x.value_type))


def _chosen_of_columns(x: Node) -> Node:
    return mult(x, one_hot(x.graph.indices([3, 0, 1]), 4, 0, type=x.value_type))


class OneHotNodeOp(UnaryNodeOp):
    type = "oneHot"
    index_children = (0,)
    differentiable = False
    depth: int
    axis: int
    to: Type = Type.float32
    cases = (Case((3, 4), through=_chosen), Case((4, 3), through=_chosen_of_columns))

    def new_spec(self, indices: Spec) -> Specs:
        sizes = indices.shape
        return spec_of((*sizes[: self.axis], self.depth, *sizes[self.axis :]), self.to)

    def forward_ops(self, indices: Array) -> Array:
        return jax.nn.one_hot(as_positions(indices), self.depth, dtype=self.to.dtype, axis=self.axis)


def one_hot(indices: Node, depth: int, axis: int = -1, type: Any = Type.float32) -> Node:
    """1 at the index, 0 elsewhere, along a new ``axis`` of size ``depth``, the last by default.

    ``indices`` is a node of integers; an index outside 0 to ``depth - 1`` gives only zeros.
    ``ElementTypeError`` for other nodes, ``ShapeError`` for a negative ``depth`` or an axis that does not
    exist.

    Shape: (...) to (..., depth), with ``depth`` at ``axis``.
    Gradient: none.
    Source: nGraph, ``OneHot``; no counterpart in Marian.
    """
    rank = len(node("one_hot", indices).shape)
    depth, axis = whole("one_hot", "depth", depth), whole("one_hot", "axis", axis)
    if depth < 0:
        raise refusal("one_hot", f"expected a depth of at least 0, got {depth}", indices)
    if not -rank - 1 <= axis <= rank:
        raise refusal("one_hot", f"a new axis {axis} cannot join {rank} axes", indices)
    return OneHotNodeOp(indices, depth=depth, axis=axis % (rank + 1), to=as_type(type))
