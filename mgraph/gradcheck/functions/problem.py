"""The witnesses of a JAX function: those of every gradient, its value under differentiation, forward mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import GradientError
from ..witnesses.agreement import Answer, ratio, relative
from ..witnesses.contraction import Point
from ..witnesses.five_point import PLACES, WEIGHTS
from ..witnesses.problem import Problem
from .traced import TracedFunction

_LEAST = 1e-5
"""The scale of differences is at least this fraction of the size of the outputs."""
_REFUTED = 1e-4
"""How far JAX's derivative must be from the rule's to be in doubt; differences refute it if the rule's error
is less than this fraction of JAX's."""
_SEEN = 0.3
"""Differences that may be off by more than this, relative to a slope, see nothing."""

Differences = dict[str, float]


class FunctionProblem(Problem):
    """A JAX function at a point. Witnesses that it does not have are left out, and ``notes`` say why."""

    def __init__(self, traced: TracedFunction, seed: int) -> None:
        self.traced, rounding = traced, traced.rounding
        self.extrapolates, self.no_jax = rounding.is_wide, traced.no_jax
        super().__init__(self._either, traced.point, seed)
        if not rounding.is_wide:
            self.note(
                f"computed in {rounding.type}: limits are those of {rounding.type}, {rounding.exact:.0e}"
            )
        draws = np.random.default_rng((seed, 2))
        self._tangents = [_random_like(p, draws) for p in self.point]
        self._adjoints = [_random_like(v, draws) for v in jax.eval_shape(self.traced.by_rule, self.point)]

    def first_order(self, rule_set: str) -> list[Answer]:
        """Differences of first derivatives, of values, and of forward mode where there is one."""
        if not all(np.isfinite(v).all() for v in self._derivatives["plain"]):
            raise GradientError("NaN or infinity among the outputs at these arguments")
        with np.errstate(all="ignore"):
            lost = self._lost_at_the_point()
            modes = [self._modes(i) for i in range(len(self.point))]
        self.no_jax = self.traced.no_jax or lost
        if self.traced.no_reverse:
            self.note(f"forward mode only: {self.traced.no_reverse}")
            return [self._told(i, Answer(mode)) for i, mode in enumerate(modes)]
        if self.no_jax and self.traced.rules:
            self.note(f"not compared with JAX's own derivative: {self.no_jax}")
        answers = [
            replace(answer, differences={**answer.differences, **mode})
            for answer, mode in zip(super().first_order(rule_set), modes, strict=True)
        ]
        if not self.extrapolates:
            answers = [replace(answer, allowed={}, findings={}) for answer in answers]
        told = [self._told(i, answer) for i, answer in enumerate(answers)]
        # At a kink, forward mode may choose a different subgradient from JAX's; reverse mode is judged there.
        silent = ("forward",) if lost or not self.smooth else ()
        return [self._heard(answer, silent) for answer in told]

    def second_order(self, rule_set: str) -> list[Answer]:
        """Differences of second derivatives, where rule and function have them."""
        return self._asked(super().second_order, rule_set)

    def transformed(self, rule_set: str) -> list[Answer]:
        return self._asked(super().transformed, rule_set)

    def zero(self, rule_set: str) -> list[Answer]:
        return self._asked(super().zero, rule_set)

    def one_hot(self, rule_set: str, most: int = 256) -> list[Answer]:
        return self._asked(partial(super().one_hot, most=most), rule_set)

    def missing(self, rule_set: str) -> list[Answer]:
        return self._asked(super().missing, rule_set)

    def repeated(self, rule_set: str) -> list[Answer]:
        return self._asked(super().repeated, rule_set)

    def compiled(self, rule_set: str) -> list[Answer]:
        return self._asked(super().compiled, rule_set)

    def _asked(self, question: Callable[[str], list[Answer]], rule_set: str) -> list[Answer]:
        """Answers to a question about reverse mode, empty where there is none."""
        if self.traced.no_reverse:
            return self._nothing()
        return [self._heard(answer) for answer in question(rule_set)]

    def _heard(self, answer: Answer, silent: Sequence[str] = ()) -> Answer:
        """An answer without the witnesses that cannot judge, and with the limits that rounding allows."""
        silent = [*silent, *(("jax",) if self.no_jax else ())]
        differences = {w: d for w, d in answer.differences.items() if w not in silent}
        return self.traced.rounding.allows(replace(answer, differences=differences))

    def _told(self, i: int, answer: Answer) -> Answer:
        """An answer, in less precise types with the limit of differences, or without these if they drown."""
        if self.extrapolates:
            return answer
        found, rounding = self._derivatives, self.traced.rounding
        magnitude = sum(
            float(np.sum(np.abs(a * v))) for a, v in zip(self._adjoints, found["plain"], strict=True)
        )
        blur = rounding.blur(magnitude, self._step(i), self._steepness(i))
        if blur <= _SEEN:
            return rounding.allows(replace(answer, allowed={"differences": blur}))
        self.note(f"differences by {self.traced.arguments.names[i]} drown in rounding")
        differences = {w: d for w, d in answer.differences.items() if w != "differences"}
        return rounding.allows(replace(answer, differences=differences))

    def _nothing(self) -> list[Answer]:
        return [Answer({}) for _ in self.point]

    # -- the function

    def _either(self, point: Point, rule_set: str, frozen: int | None) -> list[jax.Array]:
        """The outputs with the rules, or without them for JAX's own derivative where that is a witness."""
        point = [jax.lax.stop_gradient(p) if i == frozen else p for i, p in enumerate(point)]
        without = rule_set == "jax" and not self.no_jax
        return self.traced.by_jax(point) if without else self.traced.by_rule(point)

    # -- values and both modes

    @cached_property
    def _derivatives(self) -> dict[str, Any]:
        """What the function computes: ``plain`` outputs, their ``value`` under differentiation, ``gradient``
        and ``jax gradient`` of their contraction with the adjoint, ``forward`` and ``jax forward``
        derivatives along each input's tangent, and where needed the ``measured`` ones."""
        reverse, forward = not self.traced.no_reverse, not self.traced.no_forward

        def computed(point: Point) -> dict[str, Any]:
            found: dict[str, Any] = {"plain": self.traced.by_rule(point)}
            along = [self._alone(i) for i in range(len(point))]
            if reverse:
                found["value"], pull = jax.vjp(self.traced.by_rule, point)
                found["gradient"] = pull(self._fitted(found["value"]))[0]
            if reverse and not self.traced.no_jax:
                outputs, pull = jax.vjp(self.traced.by_jax, point)
                found["jax gradient"] = pull(self._fitted(outputs))[0]
            if forward:
                found["forward"] = [jax.jvp(self.traced.by_rule, (point,), (t,)) for t in along]
            if forward and not self.traced.no_jax_forward:
                found["jax forward"] = [jax.jvp(self.traced.by_jax, (point,), (t,))[1] for t in along]
            if not (reverse and self.extrapolates):
                found["measured"] = [self._slope(point, t, self._step(i)) for i, t in enumerate(along)]
            return found

        found: dict[str, Any] = jax.tree.map(np.asarray, self.run(computed, self.point))
        return found

    @cached_property
    def _size(self) -> float:
        """The largest output."""
        return max(float(np.max(np.abs(v), initial=0.0)) for v in self._derivatives["plain"])

    def _lost_at_the_point(self) -> str:
        """Why JAX's own derivative cannot be a witness at this point; empty if it can.

        Many rules exist because JAX's derivative is not finite, or wrong, at some points.
        """
        found = self._derivatives
        if "jax gradient" not in found:
            return ""
        pairs = list(zip(found["jax gradient"], found["gradient"], strict=True))
        names = self.traced.arguments.names
        finite = [(np.isfinite(own).all(), np.isfinite(rule).all()) for own, rule in pairs]
        lost = [names[i] for i, (own, rule) in enumerate(finite) if rule and not own]
        if lost:
            return f"by {', '.join(lost)} it is not finite here"
        suspects = [i for i, (own, rule) in enumerate(pairs) if _apart([own], [rule], 0.0) > _REFUTED]
        lost = [names[i] for i in suspects if self._refuted(i)]
        return f"by {', '.join(lost)} differences refute it here" if lost else ""

    def _refuted(self, i: int) -> bool:
        """Whether differences along an input's tangent say that the rule is right and JAX's own is wrong."""
        step = self._step(i)
        measured = self._sum_along(
            self.run(lambda point: self._slope(point, self._alone(i), step), self.point)
        )
        own, rule = (
            abs(np.sum(self._derivatives[key][i] * self._tangents[i]) - measured)
            for key in ("jax gradient", "gradient")
        )
        return bool(rule < _REFUTED * own)

    def _modes(self, i: int) -> Differences:
        """For an input, the differences between the value with and without differentiation, between forward
        mode by the rule and by JAX, between the rule's slope and measured differences, and between
        ``<adjoint, J t>`` and ``<J^T adjoint, t>``."""
        found, size = self._derivatives, self._size
        values = [found["value"]] if "value" in found else []
        slopes: list[Any] = []
        if "forward" in found:
            value, slopes = found["forward"][i]
            values.append(value)
        differences = {"value": max(_apart(value, found["plain"], size) for value in values)}
        if "jax forward" in found:
            differences["forward"] = _apart(slopes, found["jax forward"][i], _LEAST * size)
        if "measured" in found:
            measured = self._sum_along(found["measured"][i])
            off = abs(float(sum(map(np.sum, self._slope_terms(i)))) - measured)
            differences["differences"] = ratio(off, max(self._steepness(i), _LEAST * size))
        if "gradient" in found and "forward" in found:
            terms = [np.sum(a * s) for a, s in zip(self._adjoints, slopes, strict=True)]
            back = np.sum(found["gradient"][i] * self._tangents[i])
            scale = float(sum(map(abs, terms)) + _LEAST * size) or 1.0
            differences["dot"] = relative(sum(terms), back, scale)
        return differences

    def _sum_along(self, slopes: Sequence[Any]) -> float:
        """Derivatives of the outputs along a tangent, contracted with the adjoint."""
        return float(sum(np.sum(a * np.asarray(s)) for a, s in zip(self._adjoints, slopes, strict=True)))

    def _slope_terms(self, i: int) -> list[np.ndarray]:
        """The terms of the derivative along an input's tangent by the rule, in reverse mode if there is one;
        forward mode has an array of terms for each output."""
        found = self._derivatives
        if "gradient" in found:
            return [found["gradient"][i] * self._tangents[i]]
        return [a * slope for a, slope in zip(self._adjoints, found["forward"][i][1], strict=True)]

    def _steepness(self, i: int) -> float:
        """The sum of the absolute values of the terms."""
        return float(sum(np.sum(np.abs(term)) for term in self._slope_terms(i)))

    def _step(self, i: int) -> float:
        """The step of differences along an input's tangent."""
        return self.traced.rounding.step * max(1.0, float(np.max(np.abs(self.traced.point[i]), initial=0.0)))

    def _slope(self, point: Point, tangent: Point, step: float) -> list[Any]:
        """Five-point differences of the outputs along a tangent."""
        samples = [
            self.traced.by_rule([p + place * step * t for p, t in zip(point, tangent, strict=True)])
            for place in PLACES
        ]
        return [
            sum(w * v.astype(point[0].dtype) for w, v in zip(WEIGHTS, column, strict=True)) / step
            for column in zip(*samples, strict=True)
        ]

    def _alone(self, i: int) -> Point:
        """The tangent of one input, with zeros for the others."""
        return [jnp.asarray(t if k == i else 0 * t) for k, t in enumerate(self._tangents)]

    def _fitted(self, outputs: Sequence[jax.Array]) -> list[jax.Array]:
        """The adjoint in the types of the outputs."""
        return [jnp.asarray(a, v.dtype) for a, v in zip(self._adjoints, outputs, strict=True)]


def _random_like(spec: Any, draws: np.random.Generator) -> np.ndarray:
    return np.asarray(draws.standard_normal(spec.shape)) + 0.5


def _apart(found: Sequence[Any], expected: Sequence[Any], least: float) -> float:
    """The largest difference, relative to the largest expected number or, if that is larger, to ``least``."""
    sizes = [float(np.max(np.abs(e), initial=0.0)) for e in expected]
    scale = max([least, *sizes]) or 1.0
    return max(relative(f, e, scale) for f, e in zip(found, expected, strict=True))
