"""What a check of gradients found: one row per input, one number per witness; prints as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import GradientError
from ..tables import table

TOLERANCES: Mapping[str, float] = {
    "jax": 1e-10,
    "differences": 1e-6,
    "second": 1e-10,
    "jit": 1e-10,
    "vmap": 1e-10,
    "scan": 1e-10,
    "remat": 1e-10,
    "frozen": 1e-10,
}
"""The witnesses and the largest relative difference to each:

- ``jax``: JAX's own derivative of the same forward;
- ``differences``: five-point central differences of the forward;
- ``second``: the derivative of the gradient, by the rule and by JAX, both reverse over reverse;
- ``jit``, ``vmap``, ``scan``, ``remat``: the same rule not compiled, over a batch, in a loop, recomputed;
- ``frozen``: the same rule with another child frozen, and nothing for a frozen child.
"""

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "rule - jax": ("jax",),
    "rule - diff": ("differences",),
    "2nd order": ("second",),
    "transformed": ("jit", "vmap", "scan", "remat"),
    "frozen": ("frozen",),
}
"""Columns of a table and the witnesses whose largest difference each shows."""


@dataclass(frozen=True)
class GradientCheck:
    """The gradient by one input, held against the witnesses."""

    name: str
    shape: tuple[int, ...]
    differences: Mapping[str, float]
    """For each witness the largest difference, relative to the largest gradient."""
    problem: str = ""
    """Why the rule could not be evaluated, if it could not."""

    @property
    def jax_difference(self) -> float:
        """Largest difference to JAX's own derivative, relative to the largest gradient."""
        return self.differences.get("jax", math.inf)

    @property
    def finite_difference(self) -> float:
        """The same to central differences."""
        return self.differences.get("differences", math.inf)

    @property
    def objections(self) -> tuple[str, ...]:
        """The witnesses that disagree with the rule."""
        return tuple(w for w, difference in self.differences.items() if not difference <= TOLERANCES[w])

    @property
    def ok(self) -> bool:
        """Whether the rule agrees with all witnesses."""
        return not self.problem and not self.objections


@dataclass(frozen=True)
class GradientReport:
    """What ``check_gradients`` found; prints as a table."""

    title: str
    checks: tuple[GradientCheck, ...]
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether every gradient agrees with all witnesses."""
        return all(check.ok for check in self.checks)

    def raise_if_wrong(self) -> None:
        """``GradientError`` with the table if a gradient is wrong."""
        if not self.ok:
            raise GradientError(f"wrong gradients\n{self}")

    def __str__(self) -> str:
        columns = columns_of(c.differences for c in self.checks)
        rows = [("gradient by", "shape", *columns, "verdict")]
        for c in self.checks:
            shape = "x".join(map(str, c.shape)) or "scalar"
            rows.append((c.name, shape, *cells(c.differences, columns), verdict(c.problem, c.objections)))
        lines = table(rows, f"<<{'>' * len(columns)}<")
        return "\n".join([self.title, *lines, *([f"  {self.note}"] if self.note else [])])


def verdict(problem: str, objections: Iterable[str]) -> str:
    """``ok``, the problem, or which witnesses say that the rule is wrong."""
    return problem or (f"WRONG: {', '.join(objections)}" if objections else "ok")


def columns_of(differences: Iterable[Mapping[str, float]]) -> list[str]:
    """The columns for which there are numbers; the first two always."""
    seen = {"jax", "differences"}.union(*differences)
    return [title for title, witnesses in _COLUMNS.items() if seen.intersection(witnesses)]


def cells(differences: Mapping[str, float], columns: Sequence[str]) -> list[str]:
    """The largest number of each column, ``-`` where there is none."""
    found = [[differences[w] for w in _COLUMNS[title] if w in differences] for title in columns]
    return [f"{max(numbers):.1e}" if numbers else "-" for numbers in found]


def largest(differences: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """For each witness the largest of the differences."""
    every = list(differences)
    return {w: max(d[w] for d in every if w in d) for w in TOLERANCES if any(w in d for d in every)}
