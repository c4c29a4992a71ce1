"""``Rule``: a pattern and what takes its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..node import Node
from ..operators import find_operator
from ..recording import record
from .patterns import Match, Or, Pattern

Replace = Callable[[Match], Node | None]


@dataclass(frozen=True)
class Rule:
    """Where ``pattern`` fits, its root becomes ``replace(match)``; ``None`` leaves it as it is.

    The replacement has the root's shape, element type and trainability. ``alone`` names labels whose nodes
    must have no use outside of the match.
    """

    name: str
    pattern: Pattern
    replace: Replace
    alone: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Rule({self.name!r})"


def rule(*patterns: Pattern, alone: tuple[str, ...] = ()) -> Callable[[Replace], Rule]:
    """Decorator: the function says what takes the place of any of ``patterns``; it gives the rule its name::

    @rule(Op(LogNodeOp, Op(ExpNodeOp, Label("x"))))
    def log_exp(match):
        return match.x
    """

    def make(replace: Replace) -> Rule:
        pattern = patterns[0] if len(patterns) == 1 else Or(*patterns)
        return Rule(replace.__name__, pattern, replace, alone)

    return make


def again(node: Node, *children: Node, **fields: Any) -> Any:
    """The operation of ``node`` on other children, with some fields changed."""
    cls, operator = type(node), node.operator
    if fields:
        operator = find_operator(cls, {k: getattr(operator, k) for k in cls.fields} | fields)
    return record(cls, operator, children)


def over(node: Node, child: Node, replacement: Node) -> Any:
    """The operation of ``node`` with ``replacement`` where ``child`` is first among its children."""
    at = node.children.index(child)
    return again(node, *node.children[:at], replacement, *node.children[at + 1 :])
