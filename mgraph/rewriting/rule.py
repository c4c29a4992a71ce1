"""``Rule``: a pattern and what replaces it. ``Report``: which rules were applied, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..node import Node
from ..operators import find_operator
from ..recording import record
from .patterns import Match, Or, Pattern, check_labels

Replace = Callable[[Match], Node | None]


@dataclass(frozen=True)
class Rule:
    """Where ``pattern`` fits, its root becomes ``replace(match)``; ``None`` leaves it as it is.

    The replacement must have the root's shape, element type and trainability. ``alone`` names labels whose
    nodes must have no use outside the match. ``ArgumentError`` for what is no pattern or no function, and for
    names in ``alone`` that are not labels of the pattern.
    """

    name: str
    pattern: Pattern
    replace: Replace
    alone: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, Pattern) or not callable(self.replace):
            raise ArgumentError(
                f"rule {self.name!r}: expected a pattern and a function, got {self.pattern!r} and "
                f"{self.replace!r}"
            )
        check_labels(self.alone, self.pattern)

    def __repr__(self) -> str:
        return f"Rule({self.name!r})"


def rule(*patterns: Pattern, alone: tuple[str, ...] = ()) -> Callable[[Replace], Rule]:
    """Decorator: the function returns what replaces a match of any of ``patterns``, and names the rule::

    @rule(Op(LogNodeOp, Op(ExpNodeOp, Label("x"))))
    def log_exp(match):
        return match.x
    """

    pattern = Or(*patterns)

    def make(replace: Replace) -> Rule:
        return Rule(replace.__name__, pattern, replace, alone)

    return make


def again(node: Node, *children: Node, **fields: Any) -> Any:
    """The operation of ``node`` on other children, with some fields changed."""
    cls, operator = type(node), node.operator
    if fields:
        operator = find_operator(cls, {k: getattr(operator, k) for k in cls.fields} | fields)
    return record(cls, operator, children)


def over(node: Node, child: Node, replacement: Node) -> Any:
    """The operation of ``node`` with ``replacement`` in place of the first ``child`` among its children."""
    at = node.children.index(child)
    return again(node, *node.children[:at], replacement, *node.children[at + 1 :])


@dataclass(frozen=True)
class Change:
    """One rule applied at one place."""

    rule: str
    place: str
    """``file:line`` of the root in the user's code."""
    before: str
    after: str
    in_loop: bool = False
    """Whether it is in the body of a loop, which was made at ``place``."""

    def __str__(self) -> str:
        where = f"in the loop at {self.place}" if self.in_loop else f"at {self.place}"
        return f"{self.rule} {where}\n    {self.before}\n    -> {self.after}"


@dataclass(frozen=True)
class Report:
    """What ``optimize`` changed, in order; prints as a list. Empty reports are false."""

    changes: tuple[Change, ...]
    operators_before: int
    """Operators that a run computed before; a loop counts as one."""
    operators_after: int

    @property
    def counts(self) -> dict[str, int]:
        """How often each rule was applied, most frequent first."""
        return dict(Counter(change.rule for change in self.changes).most_common())

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        if not self.changes:
            return f"nothing to rewrite; operators: {self.operators_before}"
        rules = ", ".join(f"{name} {count}x" for name, count in self.counts.items())
        first = f"operators: {self.operators_before} before, {self.operators_after} after; {rules}"
        return "\n".join([first, *(str(change) for change in self.changes)])

    __repr__ = __str__  # for prompts and notebooks


def expression(node: Node, opened: Collection[Node], top: bool = True) -> str:
    """``node`` as a text, with children and fields of the nodes in ``opened``: ``sum(exp(x), axis=1)``."""
    if node.children and (top or node in opened):
        children = [expression(child, opened, top=False) for child in node.children]
        return f"{node.type}({', '.join([*children, *_fields(node)])})"
    return node.name if node.name != "none" else node.type


def _fields(node: Node) -> list[str]:
    """The operator's simple fields that are not the default."""
    values = {name: getattr(node.operator, name) for name in node.fields}
    return [
        f"{name}={value}"
        for name, value in values.items()
        if isinstance(value, int | float | str | tuple)
        and not (name in node.defaults and node.defaults[name] == value)
    ]
