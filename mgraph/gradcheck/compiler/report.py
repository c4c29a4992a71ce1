"""What an examination of the compiler found; prints as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...names import counted
from ...tables import table
from ..report import finite
from ..subjects import COMPOSITIONS


@dataclass(frozen=True)
class Difference:
    """A compiled number that differs from a witness's: the one of its array that is furthest off."""

    operator: str
    """Name of the node class, or of the composition."""
    case: str
    quantity: str
    """``value``, ``gradient by child 1``, ``weighted sum``."""
    element_type: str
    rows: int
    """How many examples the program computes."""
    element: tuple[int, ...]
    """Where the number is; the first index is that of the example."""
    compiled: float
    expected: float
    witness: str
    """``NumPy`` or ``not compiled``."""
    wrong: int
    """How many numbers of the array are off."""


@dataclass(frozen=True)
class CompiledRow:
    """One operator on one of its cases, or one composition."""

    operator: str
    case: str
    sizes: Mapping[str, Sequence[int]]
    """For each element type, the numbers of examples."""
    programs: int = 0
    """How many programs were compiled."""
    differences: tuple[Difference, ...] = ()
    largest: float = 0.0
    """The largest difference in units of what is allowed."""
    note: str = ""
    """Which witness could not be asked, and why."""
    problem: str = ""
    """Why nothing could be compared, if nothing could."""

    @property
    def ok(self) -> bool:
        """Whether all compiled numbers are what the witnesses say."""
        return not self.differences and not self.problem

    @property
    def verdict(self) -> str:
        """``ok`` with a note if there is one, the problem, or how many arrays are wrong."""
        if self.problem or self.differences:
            return self.problem or f"WRONG: {counted(len(self.differences), 'comparison')}"
        return f"ok ({self.note})" if self.note else "ok"


@dataclass(frozen=True)
class CompiledReport:
    """What ``check_compiled`` found; prints a table of what is wrong, and a summary."""

    rows: tuple[CompiledRow, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether something was compiled and all of it is right."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All differences, in the order of the rows."""
        return tuple(d for row in self.rows for d in row.differences)

    def __str__(self) -> str:
        lines: list[str] = []
        if self.differences:
            head = ("operator", "what", "type", "rows", "element", "compiled", "expected", "by", "wrong")
            lines = table([head, *map(_cells, self.differences)], "<<<>>>><>")
        lines += [
            f"  {f'{row.operator} {row.case}'.rstrip()}: {row.problem}" for row in self.rows if row.problem
        ]
        for note in dict.fromkeys(row.note for row in self.rows if row.note):
            named = dict.fromkeys(row.operator for row in self.rows if row.note == note)
            lines.append(f"  {note}: {', '.join(named)}")
        return "\n".join([*lines, self._summary()])

    __repr__ = __str__  # for prompts and notebooks

    def _summary(self) -> str:
        names = {row.operator for row in self.rows}
        sizes = sorted({n for row in self.rows for ns in row.sizes.values() for n in ns})
        if not sizes:
            return "nothing was compiled"
        programs = sum(row.programs for row in self.rows)
        wrong = sum(not row.ok for row in self.rows)
        largest = max(row.largest for row in self.rows)
        compositions = names & {subject.name for subject in COMPOSITIONS}
        groups = ("operator", names - compositions), ("composition", compositions)
        subjects = " and ".join(counted(len(group), noun) for noun, group in groups if group)
        return (
            f"{subjects}, {counted(len(self.rows), 'case')} of {sizes[0]:,} to {sizes[-1]:,} rows in float32 "
            f"and float64, {counted(programs, 'program')} in {self.seconds:.0f} s, {wrong} wrong; "
            f"largest difference {largest:.2g} of what is allowed"
        )

    def as_json(self) -> dict[str, Any]:
        """The table as data for JSON; a number that is not finite is ``None``."""
        return {
            "ok": self.ok,
            "seconds": round(self.seconds, 1),
            "cases": [
                {
                    "operator": row.operator,
                    "case": row.case,
                    "sizes": {t: list(sizes) for t, sizes in row.sizes.items()},
                    "largest": finite(row.largest),
                    "ok": row.ok,
                    "verdict": row.verdict,
                }
                for row in self.rows
            ],
            "differences": [
                {
                    "operator": d.operator,
                    "case": d.case,
                    "quantity": d.quantity,
                    "type": d.element_type,
                    "rows": d.rows,
                    "element": list(d.element),
                    "compiled": finite(d.compiled),
                    "expected": finite(d.expected),
                    "witness": d.witness,
                    "wrong": d.wrong,
                }
                for d in self.differences
            ],
        }


def _cells(d: Difference) -> tuple[str, ...]:
    element = ",".join(map(str, d.element)) or "-"
    rows, wrong = f"{d.rows:,}", f"{d.wrong:,}"
    numbers = f"{d.compiled:.6g}", f"{d.expected:.6g}"
    return (d.operator, d.quantity, d.element_type, rows, element, *numbers, d.witness, wrong)
