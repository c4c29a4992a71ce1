"""Assignment: replaces the value of a parameter, or of part of one, by that of an expression, in place.
Source: Alea TK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ..draws import random_sources, run_draws
from ..errors import ArgumentError, ElementTypeError, GraphError, ShapeError
from ..leaves import ParamNode
from ..node import Node
from ..ops.regions import ReverseNodeOp, replace_slice, reverse
from ..ops.shape import ReshapeNodeOp, SliceViewNodeOp, TransposeNodeOp, reshape, transpose
from ..places import place
from ..recording import record
from ..scalars import number_vector
from ..settings import GraphSettings
from ..shape import Slice
from ..structure import Structure
from ..tape import Tape
from ..tracing.trace import trace
from .programs import Plan, compiled


@dataclass(frozen=True)
class AssignPlan(Plan):
    """The values of some rows; the inputs ``given`` come first, so that their buffers can be overwritten."""

    structure: Structure
    outputs: tuple[int, ...]
    given: tuple[int, ...]

    @property
    def donated(self) -> tuple[int, ...]:
        return (0,)

    def __str__(self) -> str:
        return f"assignment of {len(self.outputs)} values"

    def __call__(
        self, given: Sequence[Any], kept: Sequence[Any], numbers: Any, draws: Any
    ) -> list[jax.Array]:
        first, rest = iter(given), iter(kept)
        count = len(given) + len(kept)
        leaves = [next(first) if k in self.given else next(rest) for k in range(count)]
        values = trace(self.structure, leaves, numbers=numbers, **random_sources(draws))
        return [values[i] for i in self.outputs]


def assign(tape: Tape[Node], settings: GraphSettings, updates: Mapping[Node, Node]) -> None:
    """Replace the values of parameters, or of parts of parameters, by those of expressions, all computed from
    the present values."""
    whole: dict[ParamNode, Node] = {}
    for target, new in updates.items():
        if not isinstance(new, Node):
            raise ArgumentError(f"assign to {target!r} expects a node, got {new!r}")
        expression = new.current()
        parameter = _parameter_below(tape, target)
        _check(tape, target, expression)
        if target is not parameter:
            start = len(tape.nodes)
            expression = _written(target, expression, whole)
            tape.not_roots.update({target.id, *range(start, len(tape.nodes))})
        elif parameter in whole:
            raise ArgumentError(f"parameter {parameter.name!r} is assigned both whole and in part")
        whole[parameter] = expression
    targets, expressions = list(whole), list(whole.values())
    excerpt = tape.below([n.id for n in expressions])
    leaves = [tape.nodes[i] for i in excerpt.inputs]
    given = tuple(
        k for k, n in enumerate(leaves) if isinstance(n, ParamNode) and n in targets and n.buffer_is_free
    )
    structure, numbers = excerpt.structure.generic()
    plan = AssignPlan(structure, tuple(excerpt.row_of[n.id] for n in expressions), given)
    values, wide = [n.leaf_value() for n in leaves], structure.is_wide()
    args = (
        [values[k] for k in given],
        [v for k, v in enumerate(values) if k not in given],
        number_vector(numbers, wide),
        run_draws(settings.seed, next(settings.runs), excerpt.random) if len(excerpt.random) else None,
    )
    found = compiled(plan, device=settings.device, wide=wide)(*args)
    for target, value in zip(targets, found, strict=True):
        target.assigned(value)


VIEWS = (SliceViewNodeOp, ReshapeNodeOp, TransposeNodeOp, ReverseNodeOp)
"""The nodes that a part of a parameter, such as ``w[1:3]``, is made of."""


def _parameter_below(tape: Tape[Node], target: Any) -> ParamNode:
    """The parameter that a target is, or is a part of; ``GraphError`` for a part recorded before
    ``graph.clear()``."""
    node = target
    while isinstance(node, VIEWS):
        node.tape()
        node = node.child(0)
    if not isinstance(node, ParamNode) or node.graph.tape is not tape:
        raise ArgumentError(
            f"assign expects parameters of this graph as targets, or slices of them such as w[1:3], got "
            f"{target!r}"
        )
    return node


def _written(part: Node, value: Node, whole: Mapping[ParamNode, Node]) -> Node:
    """The parameter below ``part`` with ``value`` in place of ``part``, after the assignments in
    ``whole``."""
    if isinstance(part, ParamNode):
        return value
    below = part.child(0)
    if isinstance(part, SliceViewNodeOp):
        slices = [Slice()] * part.axis + [Slice(part.begin, part.end, part.stride)]
        value = replace_slice(_after(below, whole), slices, value)
    elif isinstance(part, ReshapeNodeOp):
        value = reshape(value, below.shape)
    elif isinstance(part, TransposeNodeOp):
        value = transpose(value, sorted(range(len(part.axes)), key=part.axes.__getitem__))
    else:
        assert isinstance(part, ReverseNodeOp)
        value = reverse(value, part.axes)
    return _written(below, value, whole)


def _after(part: Node, whole: Mapping[ParamNode, Node]) -> Node:
    """A part of a parameter after the assignments in ``whole``."""
    if isinstance(part, ParamNode):
        return whole.get(part, part)
    made: Node = record(type(part), part.operator, (_after(part.child(0), whole),))
    return made


def _check(tape: Tape[Node], target: Node, expression: Node) -> None:
    what = f"parameter {target.name!r}" if isinstance(target, ParamNode) else "this part of a parameter"
    if expression.tape() is not tape:
        raise GraphError(f"{expression.type} made at {place(expression.where)} belongs to another graph")
    if isinstance(expression.spec, tuple) or expression.shape != target.shape:
        raise ShapeError(f"{what} has shape {target.shape}, got {expression.spec!r}")
    if expression.value_type is not target.value_type:
        raise ElementTypeError(
            f"{what} holds {target.value_type}, got {expression.value_type}; cast(x, {target.value_type})"
        )
