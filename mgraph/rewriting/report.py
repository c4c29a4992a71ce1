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
            return f"nothing to rewrite in {self.operators_before} operators"
        total = f"{self.operators_before} operators became {self.operators_after}:"
        rules = ", ".join(f"{name} {count}x" for name, count in self.counts.items())
        return "\n".join([f"{total} {rules}", *(str(change) for change in self.changes)])


def expression(node: Node, opened: Collection[Node], top: bool = True) -> str:
    """``node`` in words, with the children of the nodes in ``opened``: ``negate(log(softmax(x)))``."""
    if node.children and (top or node in opened):
        children = ", ".join(expression(child, opened, top=False) for child in node.children)
        return f"{node.type}({children})"
    return node.name if node.name != "none" else node.type
