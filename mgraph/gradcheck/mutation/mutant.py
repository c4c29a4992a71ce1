"""``Mutant``: a rule with one mistake in it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from ..trial import Rule
from .rule_source import RuleSource

Gradient = Any
Change = Callable[[Gradient], Gradient]


@dataclass(frozen=True)
class Mutant:
    """A rule that differs from an operator's in one place."""

    kind: str
    """What mistake it is: ``sign``, ``factor``, ``axis``, ..."""
    function: str
    """The function that is changed."""
    line: int
    before: str
    after: str
    places: frozenset[tuple[str, int]]
    """The lines, each with its file, one of which must run for the change to matter; empty if it always
    does."""
    made: Callable[[], Rule]
    """Makes the rule; it may fail."""
    marked: Callable[[Callable[[], None]], Rule] | None = None
    """Makes the unchanged rule, which calls a function when it reaches what is changed; ``None`` if it always
    does."""

    @property
    def change(self) -> str:
        """The change as text."""
        return f"{self.before} -> {self.after}"


def mutants_of(source: RuleSource, children: Set[int]) -> Iterator[Mutant]:
    """Every mutant of a rule: each small change to its functions, and to the gradients of ``children``, those
    that get one."""
    for part, edit in source.edits():
        yield Mutant(
            edit.kind,
            part.title,
            edit.line,
            edit.before,
            edit.after,
            frozenset((part.file, line) for line in edit.lines),
            functools.partial(source.mutant, part, edit),
            functools.partial(source.marked, part, edit),
        )
    rule, part = source.rule(), source.parts[0]
    line = part.tree.body[-1].lineno
    for i in sorted(children):
        gradient = f"gradient of child {i}"
        outcomes = [
            (kind, after.format(gradient), functools.partial(_changed, rule, i, change))
            for kind, after, change in _CHANGES
        ]
        outcomes += [
            ("child", f"gradient of child {k}, and the reverse", functools.partial(_exchanged, rule, i, k))
            for k in range(max(children) + 1)
            if k > i or k not in children
        ]
        for kind, after, made in outcomes:
            yield Mutant(kind, part.title, line, gradient, after, frozenset(), _known(made))


def _known(rule: Rule) -> Callable[[], Rule]:
    return lambda: rule


def _through(kind: str) -> Change:
    return lambda g: g.astype(kind).astype(g.dtype)


_CHANGES: tuple[tuple[str, str, Change], ...] = (
    ("child", "None", lambda g: None),
    ("sign", "-{}", lambda g: -g),
    ("scale", "2 * {}", lambda g: 2 * g),
    ("scale", "1.001 * {}", lambda g: 1.001 * g),
    ("scale", "{} / its size", lambda g: g / g.size),
    ("cast", "{}, through float32", _through("float32")),
    ("cast", "{}, through int32", _through("int32")),
)
"""Changes to the gradient of one child."""


def _changed(rule: Rule, i: int, change: Change, *args: Any) -> Any:
    found = list(rule(*args))
    if i < len(found) and found[i] is not None:
        found[i] = change(found[i])
    return tuple(found)


def _exchanged(rule: Rule, i: int, k: int, *args: Any) -> Any:
    found = list(rule(*args))
    if k < len(found):
        found[i], found[k] = found[k], found[i]
    return tuple(found)
