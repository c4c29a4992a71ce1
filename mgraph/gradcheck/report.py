"""What a gradient check found: one row per input, one number per witness; prints as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import GradientError, MGraphError, told
from ..places import raised_at
from ..tables import table
from .example import Example
from .witnesses.agreement import Finding
from .witnesses.kinks import Kink, about_kinks
from .witnesses.taylor import Taylor, about_slopes

TOLERANCES: Mapping[str, float] = {
    "jax": 1e-10,
    "differences": 1e-6,
    "second": 1e-10,
    "jit": 1e-10,
    "vmap": 1e-10,
    "scan": 1e-10,
    "remat": 1e-10,
    "frozen": 1e-10,
    "zero": 0.0,
    "one-hot": 1e-10,
    "missing": 1e-10,
    "repeat": 0.0,
    "convention": 1e-10,
    "value": 1e-10,
    "forward": 1e-10,
    "dot": 1e-10,
    "float64": 1e-10,
    "float32": 1e-5,
}
"""The witnesses, and the largest relative difference allowed to each. The first two are more precise: each of
their numbers has its own bound, in ``GradientCheck.allowed``.

- ``jax``: JAX's own derivative of the same forward, element by element;
- ``differences``: extrapolated differences of the forward, line by line;
- ``second``: the derivative of the gradient, by the rule and by JAX, both reverse over reverse;
- ``jit``, ``vmap``, ``scan``, ``remat``: the same rule uncompiled, over a batch, in a loop, recomputed;
- ``frozen``: the same rule with another child frozen, and zero for a frozen child;
- ``zero``, ``one-hot``, ``missing``: zero for a zero cotangent, and JAX's derivative for a cotangent of a
  single output element, or of all outputs but one;
- ``repeat``: the same bits when the gradient is computed again, compiled and not, and on another device;
- ``convention``: what the operator's ``conventions`` promise at kinks and numbers that are not finite;
- ``value``: for a JAX function, its value with and without differentiation;
- ``forward``, ``dot``: for a JAX function, forward mode by the rule and by JAX; forward and reverse mode;
- ``float64``, ``float32``: for a whole loss, JAX's own derivative in that type.
"""

NOTHING = "nothing was compared: the inputs or the value have no elements"
"""The note of a check of empty arrays, and the problem of an operator whose cases are all empty."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "rule - jax": ("jax",),
    "rule - diff": ("differences",),
    "2nd order": ("second",),
    "transformed": ("jit", "vmap", "scan", "remat"),
    "frozen": ("frozen",),
    "cotangents": ("zero", "one-hot", "missing"),
    "repeated": ("repeat",),
    "promised": ("convention",),
    "value": ("value",),
    "forward": ("forward", "dot"),
}
"""Columns of a table and the witnesses whose largest difference each shows."""


def with_rounding(allowed: Mapping[str, float], rounding: float) -> Mapping[str, float]:
    """The limits of witnesses where gradients may be off by ``rounding``, relative to the largest. Witnesses
    that ask for the same bits, or for what is promised, keep their limits."""
    if not rounding:
        return allowed
    kept = ("zero", "repeat", "convention")
    return {w: limit if w in kept else max(limit, rounding) for w, limit in allowed.items()}


@dataclass(frozen=True)
class GradientCheck:
    """The gradient with respect to one input, compared with the witnesses."""

    name: str
    shape: tuple[int, ...]
    differences: Mapping[str, float]
    """For each witness the largest difference, relative to the largest gradient."""
    problem: str = ""
    """Why the rule could not be evaluated, if it could not."""
    allowed: Mapping[str, float] = field(default_factory=lambda: TOLERANCES)
    """The largest difference to each witness that counts as agreement: for a witness that knows its own
    error, the smallest difference that it can see."""
    findings: Mapping[str, Finding] = field(default_factory=dict)
    """For ``jax``, ``differences``, ``convention``: where the gradient is farthest from what they expect."""
    kinks: tuple[Kink, ...] = ()
    """The kinks at the point or near it."""
    taylor: Taylor | None = None
    """Taylor remainders along a random line."""
    example: Example | None = field(default=None, compare=False, repr=False)
    """The operator and the arrays that were examined, for ``smallest_failure``."""

    @property
    def jax_difference(self) -> float:
        """Largest difference to JAX's own derivative, relative to the largest gradient."""
        return self.differences.get("jax", math.inf)

    @property
    def finite_difference(self) -> float:
        """Largest difference to slopes measured by differences, relative to the largest gradient."""
        return self.differences.get("differences", math.inf)

    @property
    def objections(self) -> tuple[str, ...]:
        """The witnesses that disagree with the rule."""
        found = self.differences.items()
        return tuple(w for w, d in found if w in self.allowed and not (d <= self.allowed[w] and d < math.inf))

    @property
    def ok(self) -> bool:
        """Whether the rule agrees with all witnesses."""
        return not self.problem and not self.objections

    @property
    def verdict(self) -> str:
        """``ok``, the problem, or which witnesses say that the rule is wrong, by how much, and what they can
        see."""
        return verdict(self.problem, self.objections, self.finding)

    @property
    def finding(self) -> Finding | None:
        """Where the rule is wrong most clearly; ``None`` if no witness says where it is wrong."""
        found = [self.findings[w] for w in self.objections if w in self.findings]
        return max(found, key=lambda finding: finding.clarity, default=None)


@dataclass(frozen=True)
class ParameterCheck(GradientCheck):
    """The gradient of a whole loss with respect to one parameter.

    The differences between rule and JAX are ``float64`` and ``float32``; ``rounding``, which has no limit, is
    the difference between JAX in float32 and JAX in float64. All are relative to ``gradient``, or, where this
    gradient is ``zero``, to the largest element of all parameters' gradients.
    """

    gradient: float = 0.0
    """The magnitude of the largest element, by JAX in float64."""
    zero: bool = False
    """Whether the gradient is zero as far as float64 can tell."""

    @property
    def verdict(self) -> str:
        """``ok``; ``zero`` or ``rounding`` where that is why it passes; ``WRONG`` where float64 says so;
        ``UNSTABLE`` where the rule is right but less accurate in float32 than JAX's derivative."""
        if self.objections:
            return "WRONG" if "float64" in self.objections else "UNSTABLE"
        if self.zero:
            return "zero"
        within = all(self.differences[w] <= TOLERANCES[w] for w in self.judged)
        return "ok" if within else "rounding"

    @property
    def judged(self) -> tuple[str, ...]:
        """The witnesses that were asked and have a limit."""
        return tuple(w for w in ("float64", "float32") if w in self.differences)

    @property
    def worst(self) -> float:
        """The largest of the differences that have a limit."""
        return max(self.differences[w] for w in self.judged)


@dataclass(frozen=True)
class GradientReport:
    """What a gradient check found; prints as a table."""

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
        rows += [(c.name, _shape(c), *cells(c.differences, columns), c.verdict) for c in self.checks]
        lines = table(rows, f"<<{'>' * len(columns)}<")
        notes = about_slopes([(c.name, c.taylor) for c in self.checks if c.taylor])
        notes += about_kinks([(c.name, kink) for c in self.checks for kink in c.kinks])
        notes += [self.note] if self.note else []
        return "\n".join([self.title, *lines, *(f"  {note}" for note in notes)])

    __repr__ = __str__  # for prompts and notebooks


@dataclass(frozen=True)
class LossReport(GradientReport):
    """The gradients of a whole loss with respect to all parameters; prints as a table of the ten worst.

    Checks that failed come first, then those with the largest difference.
    """

    checks: tuple[ParameterCheck, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about what was differentiated, such as the ``loss``; part of the JSON."""

    def worst(self, witness: str) -> ParameterCheck | None:
        """The check with the largest difference in ``"float64"`` or ``"float32"``, ``None`` without one.

        Checks that rounding decides are left out.
        """
        found = [c for c in self.checks if witness in c.differences and c.verdict != "rounding"]
        return max(found, key=lambda check: check.differences[witness], default=None)

    def table(self, rows: int | None = None) -> str:
        """The report as text with the first ``rows`` rows, or all."""
        shown = self.checks[:rows]
        width = max([len("parameter"), *(len(check.name) for check in shown)])
        lines = [
            self.title,
            f"  {'':{width}}  {'':12}  {'largest':>8}    rule - jax, relative      jax, float32",
            f"  {'parameter':{width}}  {'shape':12}  {'element':>8}  {'float64':>10}  {'float32':>10}  "
            f"{'- float64':>12}  verdict",
        ]
        for check in shown:
            found = (f"{d:.1e}" if d is not None else "" for d in _three(check))
            columns = "  ".join(f"{n:>{w}}" for n, w in zip(found, (10, 10, 12), strict=True))
            name = f"{check.name:{width}}  {_shape(check):12}  {check.gradient:8.1e}"
            lines.append(f"  {name}  {columns}  {check.verdict}")
        if left := len(self.checks) - len(shown):
            lines.append(f"  ... and {left} more")
        return "\n".join([*lines, *self._summary()])

    def _summary(self) -> Iterator[str]:
        if zeros := sum(check.zero for check in self.checks):
            yield f"zero, and relative to the model's largest element: {zeros}"
        if rounded := sum(check.verdict == "rounding" for check in self.checks):
            yield f"off by no more than JAX's own rounding (rounding): {rounded}"
        for witness in ("float64", "float32"):
            if worst := self.worst(witness):
                found = f"{worst.differences[witness]:.1e} by {worst.name}"
                yield f"worst in {witness}: {found} (allowed: {TOLERANCES[witness]:g})"
        wrong = sum(not check.ok for check in self.checks)
        yield f"{wrong} of {len(self.checks)} gradients are wrong" if wrong else "all gradients agree"

    def as_json(self) -> dict[str, Any]:
        """The report as data for JSON; a number that is not finite is ``None``."""
        return {
            "ok": self.ok,
            **{name: finite(fact) for name, fact in self.facts.items()},
            "worst": {
                witness: {"parameter": worst.name, "difference": finite(worst.differences[witness])}
                for witness in ("float64", "float32")
                if (worst := self.worst(witness))
            },
            "parameters": [
                {
                    "name": check.name,
                    "shape": list(check.shape),
                    "gradient": finite(check.gradient),
                    **dict(zip(("float64", "float32", "rounding"), map(finite, _three(check)), strict=True)),
                    "allowed": {witness: finite(limit) for witness, limit in check.allowed.items()},
                    "verdict": check.verdict,
                    "ok": check.ok,
                }
                for check in self.checks
            ],
        }

    def __str__(self) -> str:
        return self.table(10)

    __repr__ = __str__  # for prompts and notebooks


def _shape(check: GradientCheck) -> str:
    return "x".join(map(str, check.shape)) or "scalar"


def _three(check: GradientCheck) -> list[float | None]:
    return [check.differences.get(witness) for witness in ("float64", "float32", "rounding")]


def finite(value: Any) -> Any:
    """The value; ``None`` for a float that is not finite, which JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def verdict(problem: str, objections: Iterable[str], finding: Finding | None = None) -> str:
    """``ok``, or which witnesses say that the rule is wrong, and the problem."""
    wrong = [witness for witness in objections if witness != "repeat"]
    found = [f"WRONG: {', '.join(wrong)}{f' ({finding})' if finding else ''}"] if wrong else []
    found += ["NOT REPEATABLE"] if "repeat" in objections else []
    return "; ".join([*found, *([problem] if problem else [])]) or "ok"


def problem_of(error: BaseException) -> str:
    """The error that a user's operator raised, in one line with the place in the user's code: the problem of
    its row."""
    line = None if isinstance(error, MGraphError) else raised_at(error)
    return f"{told(error)} ({line})" if line else told(error)


def columns_of(differences: Iterable[Mapping[str, float]]) -> list[str]:
    """The columns that have numbers; the first two always."""
    seen = {"jax", "differences"}.union(*differences)
    return [title for title, witnesses in COLUMNS.items() if seen.intersection(witnesses)]


def cells(differences: Mapping[str, float], columns: Sequence[str]) -> list[str]:
    """The largest number of each column, ``-`` where there is none."""
    found = [[differences[w] for w in COLUMNS[title] if w in differences] for title in columns]
    return [f"{max(numbers):.1e}" if numbers else "-" for numbers in found]


def largest(differences: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """For each witness the largest of the differences."""
    every = list(differences)
    return {w: max(d[w] for d in every if w in d) for w in TOLERANCES if any(w in d for d in every)}
