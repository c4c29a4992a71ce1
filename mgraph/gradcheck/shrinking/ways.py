"""``Way``: how an example fails, to recognize a smaller one that fails in the same way."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np

from ...errors import told
from ...specs import is_real
from ..example import Example
from ..report import TOLERANCES, with_rounding
from ..witnesses.agreement import relative
from .evaluation import FirstDerivatives, Gradients

QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "first_order": ("jax", "differences"),
    "second_order": ("second",),
    "transformed": ("vmap", "scan", "remat", "frozen"),
    "cotangents": ("zero", "one-hot", "missing"),
    "repeated": ("repeat",),
    "compiled": ("jit", "repeat"),
}
"""The questions to a ``Problem``, the quickest first, and the witnesses that answer each."""

_MOST_BEND = 0.02
"""How much a slope may change within a step, relative to the gradient, where a point counts as smooth."""
_LEAST_SHARE = 0.01
"""The share of a difference that a smaller example must keep."""
_NUMBERS = re.compile(r"\d+(, ?\d+)*")


@dataclass(frozen=True)
class Way:
    """How the gradient by one child fails."""

    question: str
    child: int
    differences: Mapping[str, float] = field(default_factory=dict)
    """The differences to the witnesses that object."""
    smooth: bool = False
    """Whether JAX and differences agree and the slope does not jump: no kink can be the reason."""
    problem: str = ""
    """Why the rule could not be evaluated, if it could not."""

    def is_repeated_by(self, other: Way) -> bool:
        """Whether the other is the same failure, and not much smaller: the same witnesses object (or the rule
        fails with the same message apart from numbers), its differences are finite where these are, and it is
        not at a kink unless this one may be."""
        if self.problem or other.problem:
            return _NUMBERS.sub("#", self.problem) == _NUMBERS.sub("#", other.problem)
        return (
            self.differences.keys() == other.differences.keys()
            and all(_is_kept(d, other.differences[w]) for w, d in self.differences.items())
            and (other.smooth or not self.smooth)
        )


def _is_kept(difference: float, other: float) -> bool:
    if math.isinf(difference) or math.isinf(other):
        return difference == other
    return other >= _LEAST_SHARE * difference


def compared(found: Gradients) -> tuple[dict[str, float], bool]:
    """The differences to first-order witnesses, and whether JAX and differences agree at a smooth point."""
    slopes = found.directions @ found.by_rule.reshape(-1)
    by_jax = found.directions @ found.by_jax.reshape(-1)
    differences = {
        "jax": relative(found.by_rule, found.by_jax, found.scale),
        "differences": relative(slopes, found.differences, found.scale),
    }
    agree = relative(by_jax, found.differences, found.scale) <= TOLERANCES["differences"]
    bend = relative(found.bends, np.zeros_like(found.bends), found.scale)
    return differences, agree and bend <= _MOST_BEND


class Question:
    """One of the ``QUESTIONS``, to be asked about many examples; it keeps the programs of those that it saw.

    Only objections of the ``witnesses`` count.
    """

    def __init__(self, name: str, witnesses: Sequence[str]) -> None:
        self.name = name
        self.witnesses = tuple(witnesses)
        self._kept: dict[str, FirstDerivatives] = {}

    def ways(self, example: Example) -> list[Way]:
        """How the example fails, by child; nothing if it does not, or if it cannot be recorded."""
        with jax.enable_x64(True), np.errstate(all="ignore"):
            try:
                derivatives = self.derivatives(example)
            except Exception:  # the user's operator may raise anything
                return []
            try:
                found = self._found(derivatives, example)
            except Exception as e:  # and so may its rule
                if not derivatives.has_jax(example):
                    return []  # a failure can only be shown next to JAX's own derivative
                problem = told(e)
                return [Way(self.name, child, problem=problem) for child in derivatives.children]
        return [way for way in found if way.differences]

    def derivatives(self, example: Example) -> FirstDerivatives:
        """The program of an example; a new one if no other has its shapes, fields and integers."""
        integers = [v.tobytes() for v in example.values if not is_real(v)]
        shapes = [v.shape for v in example.values]
        key = str((shapes, dict(example.case.fields), integers))
        if key not in self._kept:
            self._kept[key] = FirstDerivatives(example)
        return self._kept[key]

    def _found(self, derivatives: FirstDerivatives, example: Example) -> list[Way]:
        if self.name == "first_order":
            gradients = derivatives(example)
            return [self._way(derivatives, child, *compared(found)) for child, found in gradients.items()]
        problem = derivatives.problem(example)
        problem.first_order(example.rule_set)
        if problem.undefined:
            return []
        answers = getattr(problem, self.name)(example.rule_set)
        pairs = zip(derivatives.children, answers, strict=True)
        return [self._way(derivatives, child, answer.differences) for child, answer in pairs]

    def _way(
        self,
        derivatives: FirstDerivatives,
        child: int,
        differences: Mapping[str, float],
        smooth: bool = False,
    ) -> Way:
        found = {w: differences[w] for w in self.witnesses if w in differences}
        allowed = with_rounding(TOLERANCES, derivatives.values.widening.rounding)
        objecting = {w: d for w, d in found.items() if not d <= allowed[w]}
        return Way(self.name, child, objecting, smooth)
