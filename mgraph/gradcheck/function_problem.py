"""The witnesses of a JAX function: those of every gradient, its value under differentiation, forward mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import GradientError
from .functions import TracedFunction
from .report import TOLERANCES
from .rounding import STEP
from .witnesses import Differences, Point, Problem, relative

_LEAST = 1e-5
"""What differences are relative to is at least so much of the size of the outputs."""
_REFUTED = 1e-4
"""A derivative that is off by more is refuted by differences that are this much closer to another one."""
_PLACES = (-2.0, -1.0, 1.0, 2.0)
_WEIGHTS = (1 / 12, -8 / 12, 8 / 12, -1 / 12)
"""A five-point difference."""


class FunctionProblem(Problem):
    """A JAX function at a point. Witnesses that it does not have are left out, and ``notes`` say why."""

    def __init__(self, traced: TracedFunction, seed: int) -> None:
        self.traced, self.notes = traced, list[str]()
        self.allowed: list[Mapping[str, float]] = [TOLERANCES for _ in traced.shapes]
        """The largest differences that count as agreement, for each input."""
        rounding = traced.rounding
        if not rounding.is_wide:
            self.notes.append(
                f"computed in {rounding.type}: limits are those of {rounding.type}, {rounding.exact:.0e}"
            )
        # In larger units the steps of differences are longer.
        sizes = [max(1.0, float(np.max(np.abs(p), initial=0.0))) for p in traced.point]
        self._units = [1.0 if rounding.is_wide else rounding.reach * size for size in sizes]
        start = [p / p.dtype.type(unit) for p, unit in zip(traced.point, self._units, strict=True)]
        self._start = [jnp.asarray(p) for p in start]
        self._no_jax = traced.no_jax
        """Why JAX's own derivative is no witness, empty if it is one."""
        draws = np.random.default_rng([seed, 1])
        self._tangents = [_random_like(p, draws) for p in self._start]
        self._adjoints = [_random_like(v, draws) for v in jax.eval_shape(self._by_rule, self._start)]
        super().__init__(self._outputs, start, seed)

    def first_order(self, rule_set: str) -> list[Differences]:
        """Differences of first derivatives, of values, and of forward mode where there is one."""
        if not all(np.isfinite(v).all() for v in self._derivatives["plain"]):
            raise GradientError("NaN or infinity among the outputs at these arguments")
        with np.errstate(all="ignore"):
            lost = self._lost_at_the_point()
            found = [self._modes(i) for i in range(len(self._units))]
        self._no_jax = self.traced.no_jax or lost
        if self.traced.no_reverse:
            self._note(f"forward mode only: {self.traced.no_reverse}")
        else:
            found = [{**d, **mode} for d, mode in zip(super().first_order(rule_set), found, strict=True)]
        if self._no_jax and self.traced.rules:
            self._note(f"not held against JAX's own derivative: {self._no_jax}")
        silent = {"jax", "forward"} if lost else {"jax"} if self._no_jax else set()
        found = [{w: d for w, d in differences.items() if w not in silent} for differences in found]
        for i, differences in enumerate(found):
            self._limit(i, differences)
        return found

    def second_order(self, rule_set: str) -> list[Differences]:
        """Differences of second derivatives, where rule and function have them."""
        if self.traced.no_reverse or self._no_jax:
            return self._nothing()
        if self.traced.no_second:
            self._note(f"no second derivatives: {self.traced.no_second}")
            return self._nothing()
        return super().second_order(rule_set)

    def transformed(self, rule_set: str) -> list[Differences]:
        """Differences under transformations, of reverse mode."""
        return self._nothing() if self.traced.no_reverse else super().transformed(rule_set)

    def compiled(self, rule_set: str) -> list[Differences]:
        """Differences to what is not compiled, of reverse mode."""
        return self._nothing() if self.traced.no_reverse else super().compiled(rule_set)

    def _nothing(self) -> list[Differences]:
        return [{} for _ in self._units]

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    # -- the function

    def _outputs(self, point: Point, rule_set: str, frozen: int | None) -> list[jax.Array]:
        point = [jax.lax.stop_gradient(p) if i == frozen else p for i, p in enumerate(point)]
        return self._by_jax(point) if rule_set == "jax" and not self._no_jax else self._by_rule(point)

    def _by_rule(self, point: Point) -> list[jax.Array]:
        return self.traced.by_rule(self._counted(point))

    def _by_jax(self, point: Point) -> list[jax.Array]:
        return self.traced.by_jax(self._counted(point))

    def _counted(self, point: Point) -> Point:
        return [x * jnp.asarray(u, x.dtype) for x, u in zip(point, self._units, strict=True)]

    # -- values and both modes

    @cached_property
    def _derivatives(self) -> dict[str, Any]:
        """What the function computes: ``plain`` outputs, their ``value`` under differentiation, ``gradient``
        and ``jax gradient`` of their contraction with the adjoint, ``forward`` and ``jax forward``
        derivatives along each input's tangent, and where it is needed the ``measured`` one."""
        reverse, forward = not self.traced.no_reverse, not self.traced.no_forward

        def computed(point: Point) -> dict[str, Any]:
            found: dict[str, Any] = {"plain": self._by_rule(point)}
            along = [self._alone(i) for i in range(len(point))]
            if reverse:
                found["value"], pull = jax.vjp(self._by_rule, point)
                found["gradient"] = pull(self._fitted(found["value"]))[0]
            if reverse and not self.traced.no_jax:
                outputs, pull = jax.vjp(self._by_jax, point)
                found["jax gradient"] = pull(self._fitted(outputs))[0]
            if forward:
                found["forward"] = [jax.jvp(self._by_rule, (point,), (t,)) for t in along]
            if forward and not self.traced.no_jax_forward:
                found["jax forward"] = [jax.jvp(self._by_jax, (point,), (t,))[1] for t in along]
            if not reverse:
                found["measured"] = [self._slope(point, t) for t in along]
            return found

        found: dict[str, Any] = jax.tree.map(np.asarray, self._run(computed, self._start))
        return found

    @cached_property
    def _size(self) -> float:
        """The largest output."""
        return max(float(np.max(np.abs(v), initial=0.0)) for v in self._derivatives["plain"])

    def _lost_at_the_point(self) -> str:
        """Why JAX's own derivative is no witness here, empty if it is one.

        Many rules exist because it is not finite, or wrong, at some points.
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
        slope = self._run(lambda point: self._slope(point, self._alone(i)), self._start)
        measured = sum(np.sum(a * np.asarray(s)) for a, s in zip(self._adjoints, slope, strict=True))
        own, rule = (
            abs(np.sum(self._derivatives[key][i] * self._tangents[i]) - measured)
            for key in ("jax gradient", "gradient")
        )
        return bool(rule < _REFUTED * own)

    def _modes(self, i: int) -> Differences:
        """Of an input, the differences of the value under differentiation to the value, of forward mode to
        JAX's own and to differences, and of ``<adjoint, J t>`` to ``<J^T adjoint, t>``."""
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
            differences["differences"] = _apart(slopes, found["measured"][i], _LEAST * size)
        if "gradient" in found and "forward" in found:
            terms = [np.sum(a * s) for a, s in zip(self._adjoints, slopes, strict=True)]
            back = np.sum(found["gradient"][i] * self._tangents[i])
            scale = float(sum(map(abs, terms)) + _LEAST * size) or 1.0
            differences["dot"] = relative(sum(terms), back, scale)
        return differences

    def _limit(self, i: int, differences: Differences) -> None:
        """What agreement means for an input, by the precision that the function computes in."""
        found = self._derivatives
        slopes = [found["gradient"][i]] if "gradient" in found else found["forward"][i][1]
        gradient = max(float(np.max(np.abs(s), initial=0.0)) for s in slopes)
        magnitude = sum(float(np.sum(np.abs(v))) for v in found["plain"])
        self.allowed[i] = self.traced.rounding.limits(magnitude, gradient)
        if "differences" not in self.allowed[i] and differences.pop("differences", None) is not None:
            self._note(f"differences by {self.traced.arguments.names[i]} drown in rounding")

    def _slope(self, point: Point, tangent: Point) -> list[Any]:
        """Five-point differences of the outputs along a tangent."""
        samples = [
            self._by_rule([p + place * STEP * t for p, t in zip(point, tangent, strict=True)])
            for place in _PLACES
        ]
        return [
            sum(w * v for w, v in zip(_WEIGHTS, column, strict=True)) / STEP
            for column in zip(*samples, strict=True)
        ]

    def _alone(self, i: int) -> Point:
        """The tangent of one input."""
        return [jnp.asarray(t if k == i else 0 * t) for k, t in enumerate(self._tangents)]

    def _fitted(self, outputs: Sequence[jax.Array]) -> list[jax.Array]:
        """The adjoint in the types of the outputs."""
        return [jnp.asarray(a, v.dtype) for a, v in zip(self._adjoints, outputs, strict=True)]


def _random_like(spec: Any, draws: np.random.Generator) -> np.ndarray:
    return np.asarray(draws.standard_normal(spec.shape)) + 0.5


def _apart(found: Sequence[Any], expected: Sequence[Any], least: float) -> float:
    """The largest difference, relative to the largest of what is expected."""
    sizes = [float(np.max(np.abs(e), initial=0.0)) for e in expected]
    scale = max([least, *sizes]) or 1.0
    return max(relative(f, e, scale) for f, e in zip(found, expected, strict=True))
