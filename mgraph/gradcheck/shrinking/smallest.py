"""A failure made small: the smallest shapes and the plainest values that fail in the same way.

The search is greedy: the first simpler example that still fails replaces the current one, until none does or
time runs out. First shapes, children and fields become smaller, then the adjoint and the values become
plainer. ``Way`` says what counts as the same failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ...arrays import described
from ...errors import ArgumentError, GraphError
from ..check import check_gradients
from ..example import Adjoint, Example
from ..report import TOLERANCES, GradientCheck, GradientReport, finite
from .evaluation import Gradients
from .pasted import pasted_test
from .simpler import cost, simpler_adjoint, simpler_fields, simpler_shapes, simpler_values
from .ways import QUESTIONS, Question, Way

SECONDS = 20.0
"""The time limit of a search, by default."""


@dataclass(frozen=True, eq=False)
class SmallestFailure:
    """The smallest example found that fails as another one does; prints as a test to paste."""

    example: Example
    way: Way
    """The child whose gradient is wrong, the witnesses that object, and by how much."""
    adjoint: Adjoint
    """What the outputs are contracted with."""
    gradients: Gradients | None
    """The gradient by that child; ``None`` unless a first derivative is wrong."""
    confirmed: bool
    """Whether ``check_gradients`` also objects to the example with a random adjoint."""
    tries: int
    seconds: float
    complete: bool
    """Whether there was time to try everything."""

    @property
    def test(self) -> str:
        """The source of the test."""
        return pasted_test(self.example, self.way, self.adjoint, self.gradients, self.confirmed)

    def as_json(self) -> dict[str, Any]:
        """The failure as data for JSON; a number that is not finite is ``None``."""
        found = self.gradients
        return {
            "child": self.way.child,
            "shapes": [list(v.shape) for v in self.example.values],
            "values": [_finite(v) for v in self.example.values],
            "adjoint": [_finite(a) for a in self.adjoint],
            "fields": {name: repr(value) for name, value in self.example.case.fields.items()},
            "expected": None if found is None else _finite(found.expected(self.way.differences)),
            "got": None if found is None else _finite(found.by_rule),
            "test": self.test,
        }

    def __str__(self) -> str:
        return self.test

    __repr__ = __str__  # for prompts and notebooks


def _finite(array: np.ndarray) -> Any:
    return finite(array.item()) if not array.ndim else [_finite(part) for part in array]


def smallest_failure(
    report: GradientReport, *, witnesses: Sequence[str] = (), seconds: float = SECONDS
) -> SmallestFailure | None:
    """The simplest failing example for a report of ``check_gradients``; ``None`` if no failure is found.

    Only objections of the ``witnesses`` count, if any are given. ``GraphError`` if the report is not about a
    node class or a function of nodes: a node or a graph cannot be rebuilt with smaller children.
    ``ArgumentError`` for an unknown witness, and for what is no report.
    """
    if not isinstance(report, GradientReport):
        raise ArgumentError(f"expected a report of check_gradients, got {described(report)}")
    every = {w for answering in QUESTIONS.values() for w in answering}
    asked = [witnesses] if isinstance(witnesses, str) else witnesses
    if strange := [w for w in asked if w not in TOLERANCES]:
        raise ArgumentError(f"expected witnesses among {', '.join(TOLERANCES)}, got {strange[0]!r}")
    chosen = every.intersection(asked or every)
    wrong = [c for c in report.checks if c.problem or chosen.intersection(c.objections)]
    if not wrong:
        return None
    if all(check.example is None for check in report.checks):
        raise GraphError(f"{report.title}: expected a report on a node class or on a function of nodes")
    examples = [(_rank(check, chosen), check.example) for check in wrong if check.example is not None]
    for _, example in sorted(examples, key=lambda pair: (pair[0], sum(v.size for v in pair[1].values))):
        if found := shrink(example, sorted(chosen), seconds=seconds):
            return found
    return None


def _rank(check: GradientCheck, witnesses: set[str]) -> int:
    """The number of the first question that shows the failure; later ones take longer."""
    objecting = witnesses.intersection(check.objections)
    ranks = [i for i, answering in enumerate(QUESTIONS.values()) if objecting.intersection(answering)]
    return min(ranks, default=len(QUESTIONS))


def shrink(
    example: Example, witnesses: Sequence[str] | None = None, *, seconds: float = SECONDS
) -> SmallestFailure | None:
    """The simplest example that fails as this one does; ``None`` if no question finds anything wrong with
    this one.

    Only objections of the ``witnesses`` count, by default of all. The search ends after ``seconds``.
    """
    for name, answering in QUESTIONS.items():
        question = Question(name, [w for w in answering if witnesses is None or w in witnesses])
        if question.witnesses and (ways := question.ways(example)):
            return _Search(question, example, ways[0], seconds).result()
    return None


class _Search:
    """The search for the simplest example, and the way in which all examples fail."""

    def __init__(self, question: Question, example: Example, way: Way, seconds: float) -> None:
        self._question, self._best, self._way, self._found = question, example, way, way
        self._start = time.perf_counter()
        self._end = self._start + seconds
        self._tried: set[str] = set()

    def result(self) -> SmallestFailure:
        """Search, and confirm the result with ``check_gradients``."""
        complete = self._run()
        best, first_order = self._best, self._question.name == "first_order"
        with jax.enable_x64(True):
            derivatives = self._question.derivatives(best)
            adjoint = derivatives.adjoint(best)
            has_numbers = first_order and not self._found.problem
            gradients = derivatives(best)[self._found.child] if has_numbers else None
        report = check_gradients(
            best.target,
            values=best.values,
            fields=best.case.fields,
            seed=best.seed,
            rule_set=best.rule_set,
            thorough=not first_order,
        )
        seconds = time.perf_counter() - self._start
        return SmallestFailure(
            best, self._found, adjoint, gradients, not report.ok, len(self._tried), seconds, complete
        )

    def _run(self) -> bool:
        """Make the example simpler; returns whether there was time to try everything."""
        while self._improve(simpler_shapes) or self._improve(simpler_fields):
            pass
        if self._question.name == "first_order" and not self._way.problem:
            while self._improve(self._with_simpler_adjoint):
                pass
        while self._improve(simpler_values):
            pass
        return time.perf_counter() < self._end

    def _with_simpler_adjoint(self, example: Example) -> Iterator[Example]:
        with jax.enable_x64(True):
            adjoint = self._question.derivatives(example).adjoint(example)
        return simpler_adjoint(example, adjoint)

    def _improve(self, simpler: Callable[[Example], Iterator[Example]]) -> bool:
        """Take the first of the simpler examples that fails in the same way; returns whether there is one."""
        for example in simpler(self._best):
            if time.perf_counter() > self._end:
                return False
            key = _key(example)
            if key in self._tried or cost(example) >= cost(self._best):
                continue
            self._tried.add(key)
            found = next((w for w in self._question.ways(example) if self._is_the_same(example, w)), None)
            if found is not None:
                self._best, self._found = example, found
                return True
        return False

    def _is_the_same(self, example: Example, way: Way) -> bool:
        """Whether it is the failure that is being shrunk, whose child has another index if children were left
        out."""
        renumbered = len(example.values) != len(self._best.values)
        return self._way.is_repeated_by(way) and (renumbered or way.child == self._found.child)


def _key(example: Example) -> str:
    arrays = (*example.values, *(example.adjoint or ()))
    return str((dict(example.case.fields), [(a.shape, a.dtype, a.tobytes()) for a in arrays]))
