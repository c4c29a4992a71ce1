"""Assignment: a parameter's value replaced by that of an expression, in place. Source: Alea TK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ..draws import random_sources, run_draws
from ..errors import ArgumentError, ElementTypeError, GraphError, ShapeError
from ..leaves import ParamNode
from ..node import Node
from ..places import place
from ..scalars import number_vector
from ..settings import GraphSettings
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


def assign(tape: Tape[Node], settings: GraphSettings, updates: Mapping[ParamNode, Node]) -> None:
    """Replace the values of parameters by those of expressions, all computed from the present values."""
    for target, expression in updates.items():
        if not isinstance(expression, Node):
            raise ArgumentError(f"assign to {target!r} expects a node, got {expression!r}")
    targets, expressions = list(updates), [node.current() for node in updates.values()]
    for target, expression in zip(targets, expressions, strict=True):
        _check(tape, target, expression)
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


def _check(tape: Tape[Node], target: Any, expression: Node) -> None:
    if not isinstance(target, ParamNode) or target.graph.tape is not tape:
        raise ArgumentError(f"assign expects parameters of this graph as targets, got {target!r}")
    if expression.tape() is not tape:
        raise GraphError(f"{expression.type} made at {place(expression.where)} belongs to another graph")
    if isinstance(expression.spec, tuple) or expression.shape != target.shape:
        raise ShapeError(f"parameter {target.name!r} has shape {target.shape}, got {expression.spec!r}")
    if expression.value_type is not target.value_type:
        raise ElementTypeError(
            f"parameter {target.name!r} holds {target.value_type}, got {expression.value_type}; "
            f"cast(x, {target.value_type})"
        )
