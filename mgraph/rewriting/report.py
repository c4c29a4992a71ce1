"""``Report``: what ``optimize`` has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from ..node import Node


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
    """What ``optimize`` has changed, in order; prints as a list. Empty reports are false."""

    changes: tuple[Change, ...]
    operators_before: int
    """Operators that a run computed before; a loop counts as one."""
    operators_after: int

    @property
    def counts(self) -> dict[str, int]:
        """How often each rule was applied, the most frequent first."""
        return dict(Counter(change.rule for change in self.changes).most_common())

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        if not self.changes:
            return f"nothing to rewrite; operators: {self.operators_before}"
        rules = ", ".join(f"{name} {count}x" for name, count in self.counts.items())
        first = f"operators: {self.operators_before} before, {self.operators_after} after; {rules}"
        return "\n".join([first, *(str(change) for change in self.changes)])


def expression(node: Node, opened: Collection[Node], top: bool = True) -> str:
    """``node`` in words, with children and fields of the nodes in ``opened``: ``sum(exp(x), axis=1)``."""
    if node.children and (top or node in opened):
        children = [expression(child, opened, top=False) for child in node.children]
        return f"{node.type}({', '.join([*children, *_fields(node)])})"
    return node.name if node.name != "none" else node.type


def _fields(node: Node) -> list[str]:
    """The operator's fields that are short to say and not the default."""
    values = {name: getattr(node.operator, name) for name in node.fields}
    return [
        f"{name}={value}"
        for name, value in values.items()
        if isinstance(value, int | float | str | tuple)
        and not (name in node.defaults and node.defaults[name] == value)
    ]
