"""The witnesses: a function of arrays, in float64, with gradients by rules, by JAX and by differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import told
from ..references.numpy_primitives import NoReferenceError
from .agreement import Answer, Finding, distance, finite, ratio, relative, same_bits, scales, worst
from .contraction import SLOTS, Adjoint, Contraction, Point, Values, total
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
_ONE_HOT = 4
"""How many output elements a thorough check takes alone."""


class Problem(Contraction):
    """A function at a point, and the questions to the witnesses of its gradient.

    Each question returns one answer per input. ``first_order`` is the first one to ask.
    """

    undefined = False
    """Whether part of the value is NaN or infinite at the point: only the gradient of the rest can be
    judged."""
    _lost: list[Any]
    """Elements of the inputs whose gradients are not finite because the value is not."""
    extrapolates = True
    """Whether outputs are computed in float64, so that differences can be extrapolated along lines."""

    no_jax = ""
    """Why JAX's own derivative cannot be a witness; empty if it can."""

    def __init__(self, values: Values, point: Sequence[Any], seed: int, cotangent: Any = None) -> None:
        super().__init__(values, point, seed, cotangent)
        self._decimals = Decimals(self)
        self.notes: list[str] = []
        """Which witnesses are missing, and why."""

    def first_order(self, rule_set: str) -> list[Answer]:
        """Differences to JAX and to slopes along lines, each element with its own bound; JAX is left out
        where it cannot differentiate what the rule can.

        Outputs that are not finite are left out, and then so are gradients that are not finite.
        """
        try:
            return self._by_both(rule_set)
        except Exception:
            self.no_jax = self.without_jax(rule_set)
            if not self.no_jax:
                raise
        self.note(f"not compared with JAX's own derivative: {self.no_jax}")
        own = self._values
        self._values = lambda p, other, frozen: own(p, rule_set if other == "jax" else other, frozen)
        self._programs.clear()
        return [
            replace(answer, differences={w: d for w, d in answer.differences.items() if w != "jax"})
            for answer in self._by_both(rule_set)
        ]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compare: no element of an input or of an output."""
        outputs = sum(a.size for a in self.adjoint if a is not None)
        return not outputs or not sum(p.size for p in self.point)

    def note(self, note: str) -> None:
        """Say once which witness is missing."""
        if note not in self.notes:
            self.notes.append(note)

    def without_jax(self, rule_set: str) -> str:
        """Why JAX cannot differentiate the function although the rule can; empty otherwise."""
        if rule_set == "jax" or self._failure(self.gradient(rule_set)):
            return ""
        return self._failure(self.gradient("jax"))

    def _failure(self, function: Callable[[Point], Any]) -> str:
        """Why a function of the point cannot be traced; empty if it can."""
        try:
            jax.eval_shape(function, self.point)
        except Exception as e:  # rules and functions of others may raise anything
            return told(e)
        return ""

    def _by_both(self, rule_set: str) -> list[Answer]:
        self._choices = [np.zeros(p.shape, bool) for p in self.point]
        self._lost = [np.zeros(p.shape, bool) for p in self.point]
        given = self._within_rounding()
        here, *near = self.gradients(rule_set, *given)
        if not np.isfinite(here[2]):
            self.undefined = self.leave_out_undefined()
            here, *near = self.gradients(rule_set, *given)
            here = self._without_lost(*here)
        by_rule, by_jax, magnitude = here
        self._scales = scales(by_jax, magnitude)
        noise = [_scatter(here, near, i) for i in range(len(self.point))]
        rounding = [
            np.minimum(n, _CLOSE * scale) + _NEAR * np.abs(finite(g))
            for n, scale, g in zip(noise, self._scales, by_rule, strict=True)
        ]
        lines = lines_through(self.point, by_rule, self._random)
        sampled = self.extrapolates and lines and self.weights.size
        found = measured(self, lines, by_rule, rounding) if sampled else None
        answers = []
        for i, scale in enumerate(self._scales):
            bound = _bound_to_jax(by_jax[i], scale, noise[i])
            if found is not None:
                apart = distance(by_rule[i], by_jax[i])
                off = ~(apart <= bound)
                self._choices[i] = self._chosen_freely(found, i, by_rule, off, rounding)
                off &= ~self._choices[i] & (apart <= _CLOSE * scale)
                by_jax[i], bound = self._corrected(i, by_jax[i], bound, off)
                off &= ~(distance(by_rule[i], by_jax[i]) <= bound)
                bound = self._with_rounding(rule_set, i, by_rule[i], by_jax[i], bound, off)
            to_jax = _elementwise(by_rule[i], by_jax[i], bound, self._choices[i], "jax", scale)
            if found is None:
                answers.append(Answer({**to_jax.differences, "differences": 0.0}, to_jax.allowed))
                continue
            known = all(not finding.wrong for finding in to_jax.findings.values())
            slopes = self._along(found, i, here, rule_set, rounding, known)
            taylor = None if self._lost[i].any() else found.taylor[i]
            answers.append(
                Answer(
                    {**to_jax.differences, **slopes.differences},
                    {**to_jax.allowed, **slopes.allowed},
                    {**to_jax.findings, **slopes.findings},
                    kinks_of(found, i, by_rule, by_jax),
                    taylor,
                )
            )
        self._smooth = found is None or not found.kinked.any()
        return answers

    def second_order(self, rule_set: str) -> list[Answer]:
        """The difference between second derivatives by rule and by JAX, reverse over reverse; none at a kink.

        A square of the output is added to the loss, so that the rule is also differentiated with respect to
        its adjoint. Answers are empty where rule or JAX cannot be differentiated twice.
        """
        if self.no_jax or not self._smooth:
            return [Answer({}) for _ in self.point]
        directions = [self.random_like(p) for p in self.point]

        def curvature(point: Point, rule_set: str) -> tuple[Any, Any]:
            gradient = jax.grad(lambda p: self.loss(p, rule_set, curved=True))

            def along(point: Point) -> tuple[jax.Array, jax.Array]:
                terms = [g * d for g, d in zip(gradient(point), directions, strict=True)]
                return total(map(jnp.sum, terms)), total(jnp.sum(jnp.abs(t)) for t in terms)

            return jax.grad(along, has_aux=True)(point)

        def witnesses(point: Point) -> tuple[Any, Any]:
            return curvature(point, rule_set), curvature(point, "jax")

        try:
            (found, _), (expected, magnitude) = self.run(witnesses, self.point)
        except Exception:
            why = self._failure(witnesses)
            if not why:
                raise
            self.note(f"no second derivatives: {why}")
            return [Answer({}) for _ in self.point]
        triples = zip(found, expected, scales(expected, magnitude), strict=True)
        return [Answer({"second": relative(f, e, scale)}) for f, e, scale in triples]

    def transformed(self, rule_set: str) -> list[Answer]:
        """The differences between the gradient and the same gradient over a batch, in a loop, recomputed, and
        with other inputs frozen."""
        gradient = self.gradient(rule_set)
        near = [0.999 * np.asarray(p) for p in self.point]
        positions = range(len(self.point))

        def witnesses(point: Point, near: Point) -> tuple[Any, Any]:
            here, there = gradient(point), gradient(near)
            both = [jnp.stack(pair) for pair in zip(point, near, strict=True)]
            expected = [jnp.stack(pair) for pair in zip(here, there, strict=True)]
            remat = jax.grad(jax.checkpoint(lambda p: self.loss(p, rule_set)))
            return (here, expected, self.magnitude(point)), {
                "vmap": jax.vmap(gradient)(both),
                "scan": jax.grad(lambda b: self._in_a_loop(b, rule_set))(both),
                "remat": remat(point),
                "frozen": [self.gradient(rule_set, frozen=k)(point) for k in positions],
            }

        (here, expected, magnitude), found = self.run(witnesses, self.point, near)
        sizes = scales(here, magnitude)
        return [
            Answer(
                {
                    "vmap": _relative_where_defined(found["vmap"][i], expected[i], sizes[i]),
                    "scan": _relative_where_defined(found["scan"][i], expected[i], sizes[i]),
                    "remat": relative(found["remat"][i], here[i], sizes[i]),
                    "frozen": max(
                        relative(
                            found["frozen"][k][i], np.zeros_like(here[i]) if i == k else here[i], sizes[i]
                        )
                        for k in positions
                    ),
                }
            )
            for i in positions
        ]

    def cotangents(self, rule_set: str) -> list[Answer]:
        """``zero``, ``one_hot`` of a few outputs, and ``missing``."""
        questions = self.zero(rule_set), self.one_hot(rule_set, _ONE_HOT), self.missing(rule_set)
        return [
            Answer({w: d for answer in answers for w, d in answer.differences.items()})
            for answers in zip(*questions, strict=True)
        ]

    def zero(self, rule_set: str) -> list[Answer]:
        """The gradient for a zero cotangent, which must be zero."""
        nothing = [None if a is None else np.zeros(a.shape) for a in self.adjoint]
        ((found, _, _),) = self.gradients(rule_set, [self.point], [nothing])
        return [
            Answer({"zero": relative(g, 0 * g, scale)}) for g, scale in zip(found, self._scales, strict=True)
        ]

    def one_hot(self, rule_set: str, most: int = 256) -> list[Answer]:
        """The differences to JAX of the gradients of single output elements, at most ``most`` of them."""
        if self.no_jax:
            return [Answer({}) for _ in self.point]
        adjoints = self._one_hot(most)
        found = self.gradients(rule_set, [self.point] * len(adjoints), adjoints)
        return [Answer({"one-hot": self._apart(i, found)} if found else {}) for i in range(len(self.point))]

    def missing(self, rule_set: str) -> list[Answer]:
        """The differences to JAX of the gradients of all outputs but one, where there are several; each of
        the first three is left out in turn."""
        present = [k for k, a in enumerate(self.adjoint) if a is not None]
        if self.no_jax or len(present) < 2:
            return [Answer({}) for _ in self.point]
        partial = [[None if j == k else a for j, a in enumerate(self.adjoint)] for k in present[:3]]

        def witnesses(point: Point) -> Any:
            return [
                (
                    jax.grad(lambda p, a=a: self.loss(p, rule_set, a))(point),
                    jax.grad(lambda p, a=a: self.loss(p, "jax", a))(point),
                    self.magnitude(point, a),
                )
                for a in partial
            ]

        found = self.run(witnesses, self.point)
        return [Answer({"missing": self._apart(i, found)}) for i in range(len(self.point))]

    def compiled(self, rule_set: str) -> list[Answer]:
        """The difference between the compiled and the uncompiled gradient, and whether the latter is the same
        twice."""
        (here, _, _), *_ = self.gradients(rule_set, [self.point], [self.adjoint])
        gradient = self.gradient(rule_set)
        eager, again = gradient(self.point), gradient(self.point)
        return [
            Answer({"jit": relative(e, h, scale), "repeat": _unlike(e, a, scale)})
            for e, a, h, scale in zip(eager, again, here, self._scales, strict=True)
        ]

    def repeated(self, rule_set: str) -> list[Answer]:
        """How far the compiled gradient is from itself computed again, also on the last of several
        devices."""
        given = [self.point] * SLOTS, [self.adjoint] * SLOTS
        runs = [*self.gradients(rule_set, *given), *self.gradients(rule_set, *given)]
        answers = [
            Answer({"repeat": max(_unlike(run[0][i], runs[0][0][i], scale) for run in runs)})
            for i, scale in enumerate(self._scales)
        ]
        others = jax.local_devices()[1:]
        if not others:
            return answers
        gradient = self.gradient(rule_set)
        here = self.run(gradient, self.point)
        there = self.run(gradient, jax.device_put(self.point, others[-1]))
        return [
            Answer({"repeat": max(answer.differences["repeat"], _unlike(h, t, scale))})
            for answer, h, t, scale in zip(answers, here, there, self._scales, strict=True)
        ]

    # -- first order

    def _within_rounding(self) -> tuple[list[Point], list[Adjoint]]:
        """The point and the adjoint, and copies of both that differ by rounding."""

        def moved(array: Any) -> Any:
            if array is None:
                return None
            return np.asarray(array) * (1 + _NEAR * self._random.uniform(-1, 1, array.shape))

        points, adjoints = [self.point], [self.adjoint]
        for _ in range(SLOTS - 1):
            points.append([moved(p) for p in self.point])
            adjoints.append([moved(a) for a in self.adjoint])
        return points, adjoints

    def _without_lost(self, by_rule: Point, by_jax: Point, magnitude: Any) -> tuple[Any, Any, Any]:
        """The result of ``gradients``, with zeros for elements that are not finite; ``_lost`` marks these."""
        finite_ones = [np.isfinite(g) & np.isfinite(j) for g, j in zip(by_rule, by_jax, strict=True)]
        self._lost = [~of_input for of_input in finite_ones]
        self.undefined |= any(lost.any() for lost in self._lost)
        both = [
            [np.where(ok, g, 0.0) for ok, g in zip(finite_ones, by, strict=True)] for by in (by_rule, by_jax)
        ]
        return both[0], both[1], magnitude

    def _chosen_freely(
        self, found: Measured, i: int, by_rule: Sequence[Any], off: Any, rounding: Sequence[Any]
    ) -> Any:
        """Which of the elements that are ``off`` from JAX's are also subgradients at a kink."""
        free = np.zeros(self.point[i].size, bool)
        differing = np.flatnonzero(off)
        if not len(differing) or not any(
            kink and line.input == i for kink, line in zip(found.kinked, found.lines, strict=True)
        ):
            return free.reshape(off.shape)
        examined = differing[np.linspace(0, len(differing) - 1, min(_EXAMINED, len(differing))).astype(int)]
        lines = [element_line(self.point, i, k) for k in examined]
        alone = measured(self, lines, by_rule, rounding)
        expected = np.array([line.along(by_rule) for line in lines])
        allowed = alone.kinked & (np.abs(alone.nearest(expected) - expected) <= alone.bound)
        for k in np.flatnonzero(alone.kinked & ~allowed):
            allowed[k] = _among(slopes_of_pieces(self, lines[k], rounding), expected[k])
            if not allowed[k]:
                break  # the rule is wrong, whatever it says at others
        free[examined[allowed]] = True
        if allowed.all():
            free[differing] = True
        return free.reshape(off.shape)

    def _corrected(self, i: int, by_jax: Any, bound: Any, off: Any) -> tuple[Any, Any]:
        """JAX's gradient with respect to the i-th input, and the bounds for the rule. The rule may be better
        than JAX: where the two are ``off``, exact numbers replace JAX's, and bounds are at least JAX's
        error."""
        if not off.any() or (exact := self._decimals.gradient("jax")) is None:
            return by_jax, bound
        return np.where(off, exact[i], by_jax), np.where(
            off, np.maximum(bound, np.abs(by_jax - exact[i])), bound
        )

    def _with_rounding(self, rule_set: str, i: int, by_rule: Any, by_jax: Any, bound: Any, off: Any) -> Any:
        """The bounds for the rule's gradient with respect to the i-th input: where it is ``off``, but right
        before rounding, its rounding is added."""
        if not off.any() or (exact := self._decimals.gradient(rule_set)) is None:
            return bound
        right = distance(exact[i], by_jax) <= bound
        return np.where(off & right, bound + np.abs(by_rule - exact[i]), bound)

    def _along(
        self, found: Measured, i: int, here: Any, rule_set: str, rounding: Sequence[Any], known: bool
    ) -> Answer:
        """The slopes along the lines through the i-th input. Where they object to a gradient that JAX agrees
        with (``known``), they are asked again: around kinks, and without rounding."""
        by_rule, by_jax, _ = here
        # No difference of outputs is infinite: there JAX is the only witness.
        silent = self._lost[i] | np.isinf(by_rule[i]) & (by_rule[i] == by_jax[i])
        rows = [
            k
            for k, line in enumerate(found.lines)
            if line.input == i and not silent[line.direction != 0].any()
        ]
        expected = np.array([line.along(by_rule) for line in found.lines])
        nearest = found.nearest(expected)
        bound = found.bound.copy()
        for k in rows:
            off = abs(expected[k] - nearest[k])
            hidden = hidden_rounding(found, k, self.weights)
            if bound[k] < off <= bound[k] + hidden and self._moves_unseen(found, k, rule_set):
                bound[k] += hidden
        if not rows:
            return Answer({"differences": 0.0})
        off = abs(expected - nearest)
        doubtful = [k for k in rows if known and not off[k] <= bound[k] and np.isfinite(off[k])]
        for k in sorted(doubtful, key=lambda k: float(bound[k] / off[k])):
            again = self._asked_again(found, k, by_rule, rule_set, rounding)
            if again is None:
                break  # the rule is wrong, whatever it says along others
            nearest[k], bound[k] = again
        lengths = np.array([found.lines[k].length for k in rows])
        expected, nearest, bound = (a[rows] / lengths for a in (expected, nearest, bound))
        scale = self._scales[i]
        return _judged("differences", expected, nearest, bound, scale, lambda k: found.lines[rows[k]].element)

    def _asked_again(
        self, found: Measured, k: int, by_rule: Any, rule_set: str, rounding: Sequence[Any]
    ) -> tuple[float, float] | None:
        """The slope along the k-th line and its bound, where these do not object to the rule after all."""
        line, slope = found.lines[k], found.lines[k].along(by_rule)
        through = [other.input == line.input for other in found.lines]
        pieces = slopes_of_pieces(self, line, rounding) if found.kinked[through].any() else None
        if pieces and _among(pieces, slope):
            low, high, bound = pieces
            return min(max(slope, low), high), bound
        for digits in DIGITS:
            if (gradient := self._decimals.gradient(rule_set, digits)) is None:
                return None
            # What rounding explains is as small as what JAX may differ by.
            near = [
                np.where(np.abs(e - g) <= _CLOSE * scale, e, g)
                for e, g, scale in zip(gradient, by_rule, self._scales, strict=True)
            ]
            exact = line.along(near)
            nearest, bound = float(found.nearest(np.full(len(found.lines), exact))[k]), float(found.bound[k])
            if not abs(exact - nearest) <= bound and (samples := self._decimals.samples(digits)):
                try:
                    again = measured(self, [line], near, rounding, samples)
                except NoReferenceError:
                    return None
                nearest, bound = float(again.nearest(np.array([exact]))[0]), float(again.bound[0])
            if abs(exact - nearest) <= bound:
                return nearest, bound + abs(exact - slope)
        nearest, bound = float(found.nearest(np.full(len(found.lines), slope))[k]), float(found.bound[k])
        bound += hidden_rounding(found, k, self.weights)
        unseen = abs(slope - nearest) <= bound and self._moves_unseen(found, k, rule_set, DIGITS[-1])
        return (nearest, bound) if unseen else None

    def _moves_unseen(self, found: Measured, k: int, rule_set: str, digits: int = 0) -> bool:
        """Whether JAX says that an output moves along a line although no bit of it changes; with ``digits``,
        in decimals."""
        if len(self.weights) != sum(a.size for a in self.adjoint if a is not None):
            return True
        still, start = ~found.slopes.moved[k], 0
        adjoint: Adjoint = []
        for a in self.adjoint:
            if a is None:
                adjoint.append(None)
                continue
            adjoint.append(a * still[start : start + a.size].reshape(a.shape))
            start += a.size
        if digits:
            by_jax = self._decimals.gradient_of(adjoint, digits)
        else:
            ((_, by_jax, _),) = self.gradients(rule_set, [self.point], [adjoint])
        return by_jax is not None and found.lines[k].along(by_jax) != 0

    # -- cotangents

    def _one_hot(self, most: int) -> list[Adjoint]:
        """Adjoints of a single output element each, at most ``most`` of them, drawn without repetition."""
        sizes = [0 if a is None else a.size for a in self.adjoint]
        starts = np.cumsum([0, *sizes])
        drawn = self._random.choice(starts[-1], min(most, starts[-1]), replace=False) if starts[-1] else []
        found = []
        for place in sorted(drawn):
            k = int(np.searchsorted(starts, place, side="right")) - 1
            one: Adjoint = [None if a is None else np.zeros(a.shape) for a in self.adjoint]
            one[k].reshape(-1)[place - starts[k]] = 1.0
            found.append(one)
        return found

    def _apart(self, i: int, found: Sequence[Any]) -> float:
        """The largest relative difference from rule to JAX for the i-th input, without choices at kinks."""
        return max(
            relative(
                np.where(self._choices[i], by_jax[i], by_rule[i]), by_jax[i], scales(by_jax, magnitude)[i]
            )
            for by_rule, by_jax, magnitude in found
        )

    def _in_a_loop(self, points: Point, rule_set: str) -> jax.Array:
        def step(sum_: jax.Array, point: Point) -> tuple[jax.Array, None]:
            return sum_ + self.loss(point, rule_set), None

        return jax.lax.scan(step, jnp.zeros(()), points)[0]


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
    shape, found = found.shape, np.where(choices, expected, found).reshape(-1)
    expected, bound = expected.reshape(-1), bound.reshape(-1)
    return _judged(
        witness, found, expected, bound, scale, lambda k: tuple(map(int, np.unravel_index(k, shape)))
    )


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


def _relative_where_defined(found: Any, expected: Any, scale: float) -> float:
    """``relative``, except that NaN is equal to NaN: the point next to the one that is checked may lie
    outside of the function's domain."""
    undefined = np.isnan(found) & np.isnan(expected)
    return relative(np.where(undefined, 0.0, found), np.where(undefined, 0.0, expected), scale)


def _unlike(first: Any, second: Any, scale: float) -> float:
    """0 for arrays that are the same to the last bit, else their difference, at least the smallest number."""
    if same_bits(first, second):
        return 0.0
    return max(relative(first, second, scale), math.ulp(0.0))
