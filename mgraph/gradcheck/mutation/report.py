"""The mutants of rules, and which witnesses see them; prints as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...tables import table
from .mutant import Mutant

WITNESSES = (
    *("raises", "jax", "differences", "platforms"),
    *("convention", "second", "bfloat16", "transformed"),
)
"""The witnesses in the order in which they are asked:

- ``raises``: the mutant, or the engine that checks what it returns, raises;
- ``jax``, ``differences``: those of ``check_gradients``, on the operator's ``cases``;
- ``platforms``: the same two, with the code for other platforms run here;
- ``convention``: the gradients that the operator's ``conventions`` promise;
- ``second``: that of ``check_gradients``;
- ``bfloat16``: the mutant raises on 16-bit numbers;
- ``transformed``: ``vmap``, ``scan``, ``remat`` and ``frozen`` of ``check_gradients``.
"""


@dataclass(frozen=True)
class Verdict:
    """What is known about one mutant: it is killed, it is equivalent for a reason, or it survives."""

    mutant: Mutant
    killers: tuple[str, ...] = ()
    """The witnesses that object to it, among those that were asked together."""
    reason: str = ""
    """Why it is the same function as the rule."""
    declared: str = ""
    """The key of the reason, if it was declared rather than found."""
    survives: str = ""
    """Where it differs from the rule, if no witness sees it."""

    @property
    def killed(self) -> bool:
        """Whether a witness sees that it is wrong."""
        return bool(self.killers)

    @property
    def first(self) -> str:
        """The first witness that sees it."""
        return self.killers[0] if self.killers[0] in WITNESSES else "transformed"

    def as_json(self) -> dict[str, Any]:
        """The mutant as data for JSON."""
        mutant = self.mutant
        found: dict[str, Any] = {
            "kind": mutant.kind,
            "function": mutant.function,
            "line": mutant.line,
            "before": mutant.before,
            "after": mutant.after,
        }
        if self.killed:
            return {**found, "killers": list(self.killers)}
        return {**found, "reason": self.reason} if self.reason else {**found, "differs": self.survives}


@dataclass(frozen=True)
class MutantRow:
    """The mutants of one operator's rule."""

    operator: str
    type: str
    verdicts: tuple[Verdict, ...]
    stale: tuple[str, ...] = ()
    """Reasons declared for changes that no mutant makes, or that a witness sees."""
    problem: str = ""
    """Why the rule could not be examined, if it could not."""
    note: str = ""
    """Why there is nothing to examine, if that is so."""

    @cached_property
    def killed(self) -> Counter[str]:
        """How many mutants each witness was the first to see."""
        return Counter(v.first for v in self.verdicts if v.killed)

    @cached_property
    def equivalent(self) -> list[Verdict]:
        """The mutants that are the same function as the rule."""
        return [v for v in self.verdicts if v.reason]

    @cached_property
    def survivors(self) -> list[Verdict]:
        """The mutants that no witness sees."""
        return [v for v in self.verdicts if v.survives]

    @property
    def ok(self) -> bool:
        """Whether every mutant is seen or is the same function, and every declared reason has a mutant."""
        return not (self.survivors or self.stale or self.problem)

    @property
    def verdict(self) -> str:
        """``ok``, a note, or what is wrong."""
        if self.problem:
            return self.problem
        wrong = [f"{len(self.survivors)} survive"] if self.survivors else []
        wrong += [f"{len(self.stale)} declared reasons without a mutant"] if self.stale else []
        return ", ".join(wrong) or self.note or "ok"

    def as_json(self) -> dict[str, Any]:
        """The row as data for JSON."""
        return {
            "operator": self.operator,
            "type": self.type,
            "mutants": len(self.verdicts),
            "killed": dict(self.killed),
            "equivalent": len(self.equivalent),
            "survivors": len(self.survivors),
            "stale": list(self.stale),
            "verdict": self.verdict,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class MutantReport:
    """What ``check_mutants`` found; prints as a table."""

    rows: tuple[MutantRow, ...]

    @property
    def ok(self) -> bool:
        """Whether every row is ok."""
        return all(row.ok for row in self.rows)

    @property
    def mutants(self) -> int:
        """The number of mutants."""
        return sum(len(row.verdicts) for row in self.rows)

    @cached_property
    def killed(self) -> Counter[str]:
        """How many mutants each witness was the first to see."""
        return sum((row.killed for row in self.rows), Counter())

    @cached_property
    def equivalent(self) -> list[tuple[str, Verdict]]:
        """The mutants that are the same function as the rule, with their operators."""
        return [(row.operator, verdict) for row in self.rows for verdict in row.equivalent]

    @cached_property
    def survivors(self) -> list[tuple[str, Verdict]]:
        """The mutants that no witness sees, with their operators."""
        return [(row.operator, verdict) for row in self.rows for verdict in row.survivors]

    @property
    def score(self) -> float | None:
        """The share of mutants that are seen, among those that are not equivalent; ``None`` if there are
        none."""
        killed, survivors = self.killed.total(), len(self.survivors)
        return killed / (killed + survivors) if killed + survivors else None

    def table(self) -> str:
        """The report with all equivalent mutants, by reason."""
        return "\n".join([*self._rows(), *self._lives(), *self._equivalents(every=True), self._summary()])

    def __str__(self) -> str:
        """As ``table``, without equivalents that were not declared but found."""
        return "\n".join([*self._rows(), *self._lives(), *self._equivalents(every=False), self._summary()])

    __repr__ = __str__  # for prompts and notebooks

    def _rows(self) -> list[str]:
        used = [w for w in WITNESSES if self.killed[w]]
        titles = "operator", "type", "mutants", *used, "equivalent", "survive", "verdict"
        rows: list[Sequence[str]] = [titles]
        for row in self.rows:
            counts = (
                len(row.verdicts),
                *(row.killed[w] for w in used),
                len(row.equivalent),
                len(row.survivors),
            )
            rows.append((row.operator, row.type, *(str(n) if n else "-" for n in counts), row.verdict))
        return table(rows, f"<<{'>' * (len(used) + 3)}<")

    def _lives(self) -> Iterator[str]:
        for operator, verdict in self.survivors:
            yield f"{operator}: {_text(verdict)}: {verdict.survives}"
        for row in self.rows:
            for change in row.stale:
                yield f"{row.operator}: a reason is declared, but no such mutant survives: {change}"

    def _equivalents(self, every: bool) -> Iterator[str]:
        reasons = Counter(verdict.reason for _, verdict in self.equivalent)
        for reason, count in reasons.most_common():
            yield f"equivalent, {reason}: {count}"
            for operator, verdict in self.equivalent:
                if verdict.reason == reason and (every or verdict.declared):
                    yield f"  {operator}: {_text(verdict)}"

    def _summary(self) -> str:
        score = "no score" if self.score is None else f"score {100 * self.score:.1f} %"
        return (
            f"{self.mutants} mutants: {self.killed.total()} killed, {len(self.equivalent)} equivalent, "
            f"{len(self.survivors)} survive; {score}"
        )

    def as_json(self) -> dict[str, Any]:
        """The report as data for JSON; ``killed`` counts mutants by the witness that saw them first, and
        ``score`` may be ``None``."""
        return {
            "ok": self.ok,
            "score": self.score,
            "mutants": self.mutants,
            "killed": dict(self.killed),
            "equivalent": [{"operator": operator, **v.as_json()} for operator, v in self.equivalent],
            "survivors": [{"operator": operator, **v.as_json()} for operator, v in self.survivors],
            "operators": [row.as_json() for row in self.rows],
        }


def _text(verdict: Verdict) -> str:
    mutant = verdict.mutant
    return f"{mutant.function}, line {mutant.line}: {mutant.change}"
