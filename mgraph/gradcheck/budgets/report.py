"""What rounding costs values and gradients, ours compared with JAX's; prints as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...names import counted
from ...tables import table
from ..report import finite

FEW = 8.0
"""Up to this many roundings count against neither rule nor JAX."""
WORSE = 4.0
"""A result is clearly worse if it has more than this many times the other's roundings."""

NOT_FINITE, WORSE_THAN_JAX, ANOTHER = "not finite", "worse than JAX", "another gradient"
VALUE_NOT_FINITE, FOLLOWS, NEITHER = "value not finite", "not finite, as the value", "not finite, nor JAX's"
FINITE, BETTER = "finite, unlike JAX's", "better than JAX"
LOST, VALUE_LOST = "lost, as JAX's", "value lost"

VERDICTS = (
    NOT_FINITE, ANOTHER, WORSE_THAN_JAX, FINITE, BETTER, LOST, VALUE_NOT_FINITE, VALUE_LOST, NEITHER, FOLLOWS,
    "ok",
)  # fmt: skip
"""The verdicts on a result, the most telling first:

- ``not finite``: the rule gives NaN or an infinity for a number of at most a quarter of the element type's
  largest, and JAX does not;
- ``another gradient``: the exact results of rule and JAX differ on usual inputs;
- ``worse than JAX``: the rule has more than ``FEW`` roundings and ``WORSE`` times as many as JAX, whose
  worst number is not off by more than half of its size;
- ``finite, unlike JAX's``, ``better than JAX``: as ``not finite`` and ``worse than JAX``, with rule and JAX
  exchanged;
- ``lost, as JAX's``: off by more than ``FEW`` roundings and by more than half of the number, and JAX's is not
  clearly better;
- ``value lost``: a value is off as far;
- ``value not finite``: the value overflows on the way to a number that the element type can represent;
- ``not finite, nor JAX's``, ``not finite, as the value``: the gradient is not finite, and neither is JAX's,
  or the value, respectively.
"""
FAILURES = (NOT_FINITE, ANOTHER, WORSE_THAN_JAX)


@dataclass(frozen=True)
class Extreme:
    """The number of an array that is furthest off."""

    ulps: float
    """The most units in the last place of any number of the array; infinite where one is not finite."""
    roundings: float
    """The roundings of this number, the most of the array."""
    element: tuple[int, ...]
    got: float
    exact: float

    @property
    def is_lost(self) -> bool:
        """Whether it is off by more than ``FEW`` roundings, and by more than half of its size."""
        return self.roundings > FEW and not abs(self.got - self.exact) <= abs(self.exact) / 2

    def as_json(self) -> dict[str, Any]:
        """As data for JSON; a number that is not finite is ``None``."""
        return {
            "ulps": finite(self.ulps),
            "roundings": finite(self.roundings),
            "element": list(self.element),
            "got": finite(self.got),
            "exact": finite(self.exact),
        }


@dataclass(frozen=True)
class StressResult:
    """One result for one set of inputs, by rule and by JAX."""

    case: str
    kind: str
    """The kind of inputs, one of ``budgets.inputs.KINDS``, with the child if only one child has them."""
    quantity: str
    """``value``, ``gradient by child 1``."""
    inputs: tuple[str, ...]
    """For each child, the number that belongs to our worst element, or the range of its numbers."""
    ours: Extreme
    jax: Extreme | None
    """``None`` for values, and for rules that are not meant to be JAX's derivative."""
    differ: bool = False
    """Whether the exact results of rule and JAX differ."""
    overflows: bool = False
    """Whether a value of the same program is not finite, although it could be."""

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``."""
        ours = self.ours.roundings
        if self.differ and self.kind == "usual":
            return ANOTHER
        if ours == math.inf:
            if self.quantity.startswith("value"):
                return VALUE_NOT_FINITE
            if self.overflows:
                return FOLLOWS
            return NEITHER if self.jax is not None and self.jax.roundings == math.inf else NOT_FINITE
        if self.jax is None:
            return VALUE_LOST if self.ours.is_lost and self.quantity.startswith("value") else "ok"
        jaxs = self.jax.roundings
        if ours > FEW and ours > WORSE * jaxs and not self.jax.is_lost:
            return WORSE_THAN_JAX
        if self.ours.is_lost:
            return LOST
        if jaxs == math.inf:
            return "ok" if self.overflows else FINITE
        return BETTER if jaxs > FEW and jaxs > WORSE * ours else "ok"

    @property
    def contrast(self) -> tuple[float, float]:
        """How far apart the two are, then how many roundings the worse one has; to order findings."""
        ours, jaxs = self.ours.roundings, self.jax.roundings if self.jax else 0.0
        most, least = max(ours, jaxs), min(ours, jaxs)
        return (most / max(least, 1.0) if math.isfinite(most) else math.inf), most

    def as_json(self) -> dict[str, Any]:
        """As data for JSON."""
        return {
            "case": self.case,
            "inputs": {"kind": self.kind, "children": list(self.inputs)},
            "ours": self.ours.as_json(),
            "jax": self.jax.as_json() if self.jax is not None else None,
        }


@dataclass(frozen=True)
class Budget:
    """One quantity of an operator in one element type, on all cases and kinds of inputs."""

    operator: str
    """Name of the node class."""
    element_type: str = ""
    quantity: str = ""
    results: tuple[StressResult, ...] = ()
    note: str = ""
    """What replaced exact arithmetic, and why."""
    problem: str = ""
    """Why nothing could be computed, for the operator or for a case, if nothing could."""
    declared: Mapping[str, str] = field(default_factory=dict)
    """The verdicts in spite of which the operator's rule is kept, and why."""

    @property
    def title(self) -> str:
        """Operator, element type and quantity."""
        return " ".join(filter(None, (self.operator, self.element_type, self.quantity)))

    @property
    def direction(self) -> str:
        """``value`` or ``gradient``."""
        return self.quantity.partition(" ")[0]

    @property
    def worst(self) -> StressResult:
        """The result in which ours has the most roundings."""
        return max(self.results, key=lambda c: c.ours.roundings)

    @property
    def worst_of_jax(self) -> StressResult | None:
        """The result in which JAX's has the most roundings."""
        found = [c for c in self.results if c.jax is not None]
        return max(found, key=lambda c: c.jax.roundings if c.jax else 0.0, default=None)

    @property
    def verdict(self) -> str:
        """The problem, or the most telling verdict of the results."""
        return self.problem or min((c.verdict for c in self.results), key=VERDICTS.index)

    @property
    def ok(self) -> bool:
        """Whether there is no problem, and no result has a verdict that makes it fail."""
        return not self.problem and not any(c.verdict in self.undeclared for c in self.results)

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The ``FAILURES`` that are not declared: the verdicts that make it fail."""
        return tuple(verdict for verdict in FAILURES if verdict not in self.declared)

    @property
    def findings(self) -> dict[str, StressResult]:
        """For each verdict other than ``ok``, the result that shows it best."""
        found: dict[str, StressResult] = {}
        for c in sorted(self.results, key=lambda c: c.contrast, reverse=True):
            found.setdefault(c.verdict, c)
        return {verdict: found[verdict] for verdict in VERDICTS if verdict in found and verdict != "ok"}

    def as_json(self) -> dict[str, Any]:
        """The row as data for JSON."""
        row: dict[str, Any] = {"operator": self.operator, "ok": self.ok, "verdict": self.verdict}
        if self.problem:
            return row
        of_jax = self.worst_of_jax
        return {
            **row,
            "type": self.element_type,
            "quantity": self.quantity,
            "note": self.note,
            "declared": dict(self.declared),
            "ours": _worst_as_json(c.ours for c in self.results),
            "jax": _worst_as_json(c.jax for c in self.results if c.jax) if of_jax else None,
            "worst": self.worst.as_json(),
            "findings": [{"verdict": v, **c.as_json()} for v, c in self.findings.items()],
        }


@dataclass(frozen=True)
class BudgetReport:
    """What ``check_budgets`` found; prints a table, the findings, and a summary."""

    rows: tuple[Budget, ...]

    @property
    def ok(self) -> bool:
        """Whether there are rows, and every one is ok."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    def __str__(self) -> str:
        types = list(dict.fromkeys(row.element_type for row in self.rows if not row.problem))
        head = ("operator", "roundings of", *types, "worst inputs", "verdict")
        lines = table([head, *self._table(types)], f"<<{'>' * len(types)}<<")
        return "\n".join([*lines, *self._findings(), *self._notes(), self._summary()])

    __repr__ = __str__  # for prompts and notebooks

    def _table(self, types: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """A row for the values and one for the gradients of each operator: ours and JAX's by type."""
        for (operator, direction), rows in self._grouped().items():
            if not direction:
                yield from ((operator, "", *("" for _ in types), "", row.problem) for row in rows)
                continue
            cells = (_cell([r for r in rows if r.element_type == t]) for t in types)
            telling = min(rows, key=lambda r: (VERDICTS.index(r.verdict), -r.worst.ours.roundings))
            worst = telling.findings.get(telling.verdict, telling.worst)
            kept = ", declared" if telling.verdict in FAILURES and telling.ok else ""
            yield operator, direction, *cells, worst.kind, telling.verdict + kept

    def _grouped(self) -> dict[tuple[str, str], list[Budget]]:
        groups: dict[tuple[str, str], list[Budget]] = {}
        for row in self.rows:
            groups.setdefault((row.operator, row.direction), []).append(row)
        return groups

    def _findings(self) -> Iterator[str]:
        """The best example of each verdict of an operator's values or gradients."""
        for verdict in VERDICTS[:-1]:
            lines = []
            for rows in self._grouped().values():
                found = [(row, row.findings[verdict]) for row in rows if verdict in row.findings]
                if found:
                    lines.append(_example(*max(found, key=lambda pair: pair[1].contrast)))
            if lines:
                yield f"{verdict}:"
                yield from lines

    def _notes(self) -> Iterator[str]:
        for note in dict.fromkeys(row.note for row in self.rows if row.note):
            named = dict.fromkeys(row.operator for row in self.rows if row.note == note)
            yield f"{note}: {', '.join(named)}"
        for operator, verdict, reason in self._declared():
            rows = [row for row in self.rows if row.operator == operator]
            seen = any(verdict in row.findings for row in rows)
            yield f"declared{'' if seen else ', and not seen here'}: {operator}, {verdict}: {reason}"

    def _declared(self) -> Iterator[tuple[str, str, str]]:
        declared = {row.operator: row.declared for row in self.rows}
        return ((name, v, reason) for name, reasons in declared.items() for v, reason in reasons.items())

    def _summary(self) -> str:
        operators = {row.operator for row in self.rows}
        found = [row.verdict for row in self.rows if not row.problem]
        counts = (f"{found.count(v)} {v}" for v in VERDICTS[:-1] if v in found)
        programs = sum(len(row.results) for row in self.rows)
        total = f"{counted(len(operators), 'operator')}, {len(found)} quantities, {programs:,} results"
        return "; ".join([total, *counts, *(["all ok"] if self.ok and set(found) == {"ok"} else [])])

    def as_json(self) -> dict[str, Any]:
        """The report as data for JSON; a number that is not finite is ``None``."""
        return {
            "ok": self.ok,
            "limits": {"few": FEW, "worse": WORSE},
            "budgets": [row.as_json() for row in self.rows],
        }


def _worst_as_json(extremes: Iterable[Extreme]) -> dict[str, Any]:
    found = list(extremes)
    return {
        "ulps": finite(max(e.ulps for e in found)),
        "roundings": finite(max(e.roundings for e in found)),
    }


def _cell(rows: Sequence[Budget]) -> str:
    """The most roundings of ours, and of JAX's if JAX was asked."""
    if not rows:
        return "-"
    ours = _number(max(row.worst.ours.roundings for row in rows))
    jaxs = [c.jax.roundings for row in rows for c in row.results if c.jax is not None]
    return f"{ours} / {_number(max(jaxs))}" if jaxs else ours


def _number(roundings: float) -> str:
    return f"{roundings:.1f}" if roundings < 100 else f"{roundings:.1e}"


def _example(row: Budget, c: StressResult) -> str:
    """A result as a line: what, where, the numbers."""
    element = ",".join(map(str, c.ours.element)) or "-"
    where = f"{row.operator} {c.case}, {row.element_type}, {row.quantity}, {c.kind}"
    line = f"  {where}: {_furthest(c.ours)} (element {element}, inputs {', '.join(c.inputs)})"
    return line if c.jax is None else f"{line}; JAX: {_furthest(c.jax)}"


def _furthest(e: Extreme) -> str:
    """The number that is furthest off, and how far."""
    roundings, ulps = _number(e.roundings), _number(e.ulps)
    return f"{e.got:.6g} for {e.exact:.6g}, {roundings} roundings, at most {ulps} ulp"
