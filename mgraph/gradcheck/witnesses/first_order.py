"""The first question to the witnesses: is a gradient by a rule JAX's, and has it the slopes along lines?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..references.numpy_primitives import NoReferenceError
from .agreement import Answer, Finding, distance, finite, ratio, scales, worst
from .contraction import SLOTS, Adjoint, Contraction, Point
from .decimals import DIGITS, Decimals
from .lines import (
    Measured,
    element_line,
    hidden_rounding,
    kinks_of,
    lines_through,
    measured,
    slopes_of_pieces,
)

_CLOSE, _CLOSE_SMALL = 1e-10, 1e-6
"""How near to JAX's an element must be, relative to itself; the second limit is for an element so small that
rounding in larger ones may reach it."""
_NEAR = 4 * np.finfo(np.float64).eps
"""How far inputs and adjoints are moved, relative to themselves, to see what rounding does to a gradient."""
_ROUNDINGS = 4
"""Rounding may be this many times as large as was seen."""
_EXAMINED = 48
"""Where rule and JAX differ, at most this many elements are compared with differences, in search of kinks."""


class FirstOrder:
    """The gradients of a problem at its point, by a rule, by JAX, and as slopes along lines.

    Outputs that are not finite are left out of the problem, and then so are gradients that are not finite.
    Without ``lines``, only rule and JAX are compared.
    """

    def __init__(self, problem: Contraction, rule_set: str, *, lines: bool = True) -> None:
        self._problem, self._rule_set, self._decimals = problem, rule_set, Decimals(problem)
        self._lost: list[Any] = [np.zeros(p.shape, bool) for p in problem.point]
        """Elements of the inputs whose gradients are not finite because the value is not."""
        self.choices: list[Any] = [np.zeros(p.shape, bool) for p in problem.point]
        """Elements of the inputs at a kink, where the rule has another subgradient than JAX."""
        given = self._within_rounding()
        here, *near = problem.gradients(rule_set, *given)
        if not np.isfinite(here[2]):
            problem.leave_out_undefined()
            here, *near = problem.gradients(rule_set, *given)
            here = self._without_lost(*here)
        self._by_rule, self._by_jax, magnitude = here
        self.scales = scales(self._by_jax, magnitude)
        """The size of each input's gradient."""
        self._noise = [_scatter(here, near, i) for i in range(len(problem.point))]
        """How far rounding of the point and the adjoint moves the gradients."""
        self._rounding = [
            np.minimum(noise, _CLOSE * scale) + _NEAR * np.abs(finite(g))
            for noise, scale, g in zip(self._noise, self.scales, self._by_rule, strict=True)
        ]
        through = lines_through(problem.point, self._by_rule, problem.random) if lines else []
        sampled = through and problem.weights.size
        self._found = measured(problem, through, self._by_rule, self._rounding) if sampled else None

    @property
    def smooth(self) -> bool:
        """Whether no line has a kink at the point."""
        return self._found is None or not self._found.kinked.any()

    def answers(self) -> list[Answer]:
        """The differences from the rule to JAX and to the slopes, for each input."""
        return [self._answer(i) for i in range(len(self._problem.point))]

    def _answer(self, i: int) -> Answer:
        to_jax = self._to_jax(i)
        if self._found is None:
            return Answer({**to_jax.differences, "differences": 0.0}, to_jax.allowed)
        known = all(not finding.wrong for finding in to_jax.findings.values())
        slopes = self._to_slopes(self._found, i, known)
        return Answer(
            {**to_jax.differences, **slopes.differences},
            {**to_jax.allowed, **slopes.allowed},
            {**to_jax.findings, **slopes.findings},
            kinks_of(self._found, i, self._by_rule, self._by_jax),
            None if self._lost[i].any() else self._found.taylor[i],
        )

    # -- what may move gradients

    def _within_rounding(self) -> tuple[list[Point], list[Adjoint]]:
        """The point and the adjoint, and copies of both that differ by rounding."""
        point, adjoint, random = self._problem.point, self._problem.adjoint, self._problem.random

        def moved(array: Any) -> Any:
            if array is None:
                return None
            return np.asarray(array) * (1 + _NEAR * random.uniform(-1, 1, array.shape))

        points, adjoints = [point], [adjoint]
        for _ in range(SLOTS - 1):
            points.append([moved(p) for p in point])
            adjoints.append([moved(a) for a in adjoint])
        return points, adjoints

    def _without_lost(self, by_rule: Point, by_jax: Point, magnitude: Any) -> tuple[Any, Any, Any]:
        """The result of ``gradients``, with zeros for elements that are not finite; ``_lost`` marks these."""
        finite_ones = [np.isfinite(g) & np.isfinite(j) for g, j in zip(by_rule, by_jax, strict=True)]
        self._lost = [~of_input for of_input in finite_ones]
        self._problem.undefined |= any(lost.any() for lost in self._lost)
        both = [
            [np.where(ok, g, 0.0) for ok, g in zip(finite_ones, by, strict=True)] for by in (by_rule, by_jax)
        ]
        return both[0], both[1], magnitude

    # -- the rule and JAX

    def _to_jax(self, i: int) -> Answer:
        """The differences from the rule to JAX for the i-th input. Elements that JAX has less exactly than
        the rule are corrected first."""
        by_rule, scale = self._by_rule[i], self.scales[i]
        bound = _bound_to_jax(self._by_jax[i], scale, self._noise[i])
        if self._found is not None:
            apart = distance(by_rule, self._by_jax[i])
            off = ~(apart <= bound)
            self.choices[i] = self._chosen_freely(i, off)
            off &= ~self.choices[i] & (apart <= _CLOSE * scale)
            self._by_jax[i], bound = self._corrected(i, bound, off)
            off &= ~(distance(by_rule, self._by_jax[i]) <= bound)
            bound = self._with_rounding(i, bound, off)
        return _elementwise(by_rule, self._by_jax[i], bound, self.choices[i], "jax", scale)

    def _chosen_freely(self, i: int, off: Any) -> Any:
        """Which of the elements that are ``off`` from JAX's are also subgradients at a kink."""
        problem, found = self._problem, self._found
        free = np.zeros(problem.point[i].size, bool)
        differing = np.flatnonzero(off)
        if found is None or not len(differing) or not found.kinked_by(i):
            return free.reshape(off.shape)
        examined = differing[np.linspace(0, len(differing) - 1, min(_EXAMINED, len(differing))).astype(int)]
        lines = [element_line(problem.point, i, k) for k in examined]
        alone = measured(problem, lines, self._by_rule, self._rounding)
        expected = np.array([line.along(self._by_rule) for line in lines])
        allowed = alone.kinked & (np.abs(alone.nearest(expected) - expected) <= alone.bound)
        for k in np.flatnonzero(alone.kinked & ~allowed):
            allowed[k] = _among(slopes_of_pieces(problem, lines[k], self._rounding), expected[k])
            if not allowed[k]:
                break  # the rule is wrong, whatever it says at others
        free[examined[allowed]] = True
        if allowed.all():
            free[differing] = True
        return free.reshape(off.shape)

    def _corrected(self, i: int, bound: Any, off: Any) -> tuple[Any, Any]:
        """JAX's gradient with respect to the i-th input, and the bounds for the rule. The rule may be better
        than JAX: where the two are ``off``, exact numbers replace JAX's, and bounds are at least JAX's
        error."""
        by_jax = self._by_jax[i]
        if not off.any() or (exact := self._decimals.gradient("jax")) is None:
            return by_jax, bound
        error = np.abs(by_jax - exact[i])
        return np.where(off, exact[i], by_jax), np.where(off, np.maximum(bound, error), bound)

    def _with_rounding(self, i: int, bound: Any, off: Any) -> Any:
        """The bounds for the rule's gradient with respect to the i-th input: where it is ``off``, but right
        before rounding, its rounding is added."""
        if not off.any() or (exact := self._decimals.gradient(self._rule_set)) is None:
            return bound
        right = distance(exact[i], self._by_jax[i]) <= bound
        return np.where(off & right, bound + np.abs(self._by_rule[i] - exact[i]), bound)

    # -- the rule and slopes along lines

    def _to_slopes(self, found: Measured, i: int, known: bool) -> Answer:
        """The differences from the rule to the slopes along the lines through the i-th input. Where slopes
        object to a gradient that JAX agrees with (``known``), they are asked again: around kinks, and without
        rounding."""
        by_rule = self._by_rule
        # No difference of outputs is infinite: there JAX is the only witness.
        silent = self._lost[i] | np.isinf(by_rule[i]) & (by_rule[i] == self._by_jax[i])
        rows = [
            k
            for k, line in enumerate(found.lines)
            if line.input == i and not silent[line.direction != 0].any()
        ]
        if not rows:
            return Answer({"differences": 0.0})
        expected = np.array([line.along(by_rule) for line in found.lines])
        nearest, bound = found.nearest(expected), found.bound.copy()
        off = abs(expected - nearest)
        for k in rows:
            hidden = hidden_rounding(found, k, self._problem.weights)
            if bound[k] < off[k] <= bound[k] + hidden and self._moves_unseen(found, k):
                bound[k] += hidden
        doubtful = [k for k in rows if known and not off[k] <= bound[k] and np.isfinite(off[k])]
        for k in sorted(doubtful, key=lambda k: float(bound[k] / off[k])):
            again = self._asked_again(found, k)
            if again is None:
                break  # the rule is wrong, whatever it says along others
            nearest[k], bound[k] = again
        lengths = np.array([found.lines[k].length for k in rows])
        expected, nearest, bound = (a[rows] / lengths for a in (expected, nearest, bound))
        scale = self.scales[i]
        return _judged("differences", expected, nearest, bound, scale, lambda k: found.lines[rows[k]].element)

    def _asked_again(self, found: Measured, k: int) -> tuple[float, float] | None:
        """The slope along the k-th line and its bound, where these do not object to the rule after all."""
        problem, line = self._problem, found.lines[k]
        slope = line.along(self._by_rule)
        kinked = found.kinked_by(line.input)
        pieces = slopes_of_pieces(problem, line, self._rounding) if kinked else None
        if pieces and _among(pieces, slope):
            low, high, bound = pieces
            return min(max(slope, low), high), bound
        for digits in DIGITS:
            if (gradient := self._decimals.gradient(self._rule_set, digits)) is None:
                return None
            # What rounding explains is as small as what JAX may differ by.
            near = [
                np.where(np.abs(e - g) <= _CLOSE * scale, e, g)
                for e, g, scale in zip(gradient, self._by_rule, self.scales, strict=True)
            ]
            exact = line.along(near)
            nearest, bound = found.nearest_along(k, exact), float(found.bound[k])
            if not abs(exact - nearest) <= bound and (samples := self._decimals.samples(digits)):
                try:
                    again = measured(problem, [line], near, self._rounding, samples)
                except NoReferenceError:
                    return None
                nearest, bound = again.nearest_along(0, exact), float(again.bound[0])
            if abs(exact - nearest) <= bound:
                return nearest, bound + abs(exact - slope)
        nearest = found.nearest_along(k, slope)
        bound = float(found.bound[k]) + hidden_rounding(found, k, problem.weights)
        unseen = abs(slope - nearest) <= bound and self._moves_unseen(found, k, DIGITS[-1])
        return (nearest, bound) if unseen else None

    def _moves_unseen(self, found: Measured, k: int, digits: int = 0) -> bool:
        """Whether JAX says that an output moves along the k-th line although no bit of it changes; with
        ``digits``, in decimals."""
        problem = self._problem
        if len(problem.weights) != sum(a.size for a in problem.adjoint if a is not None):
            return True
        still, start = ~found.slopes.moved[k], 0
        adjoint: Adjoint = []
        for a in problem.adjoint:
            if a is None:
                adjoint.append(None)
                continue
            adjoint.append(a * still[start : start + a.size].reshape(a.shape))
            start += a.size
        if digits:
            by_jax = self._decimals.gradient_of(adjoint, digits)
        else:
            ((_, by_jax, _),) = problem.gradients(self._rule_set, [problem.point], [adjoint])
        return by_jax is not None and found.lines[k].along(by_jax) != 0


def _scatter(here: Any, near: Sequence[Any], i: int) -> Any:
    """How far rounding moves the gradients of the i-th input, the rule's and JAX's together."""
    with np.errstate(invalid="ignore"):
        moved = [np.max([np.abs(other[by][i] - here[by][i]) for other in near], axis=0) for by in (0, 1)]
    return _ROUNDINGS * np.nan_to_num(moved[0] + moved[1], posinf=0.0)


def _among(pieces: tuple[float, float, float] | None, slope: float) -> bool:
    """Whether a slope is between those of the pieces around a kink."""
    return pieces is not None and pieces[0] - pieces[2] <= slope <= pieces[1] + pieces[2]


def _bound_to_jax(by_jax: Any, scale: float, noise: Any) -> Any:
    """How far elements may be from JAX's: by rounding, but by no more than the tolerance of the largest."""
    size = np.abs(finite(by_jax))
    return _CLOSE * size + np.minimum(_CLOSE * scale, _CLOSE_SMALL * size + noise)


def _elementwise(found: Any, expected: Any, bound: Any, choices: Any, witness: str, scale: float) -> Answer:
    """The comparison element by element, without choices at a kink."""
    shape = found.shape
    found, expected = (a.reshape(-1) for a in without_choices(choices, found, expected))
    bound = bound.reshape(-1)
    return _judged(
        witness, found, expected, bound, scale, lambda k: tuple(map(int, np.unravel_index(k, shape)))
    )


def without_choices(choices: Any, found: Any, expected: Any) -> tuple[Any, Any]:
    """Both gradients. A choice at a kink counts as expected; where the expected one is NaN, both are 0."""
    expected = np.where(choices, finite(expected), expected)
    return np.where(choices, expected, found), expected


def _judged(
    witness: str, found: Any, expected: Any, bound: Any, scale: float, place: Callable[[int], Any]
) -> Answer:
    """The worst of the differences, relative to ``scale``, and what could be seen there."""
    if not found.size:
        return Answer({witness: 0.0}, {witness: 0.0})
    k = worst(found, expected, bound)
    finding = Finding(place(k), float(found[k]), float(expected[k]), float(bound[k]))
    return Answer(
        {witness: ratio(finding.off, scale)},
        {witness: ratio(finding.bound, scale)},
        {witness: finding},
    )
