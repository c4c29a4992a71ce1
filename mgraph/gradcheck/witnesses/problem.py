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
from .agreement import Answer, relative, same_bits, scales
from .contraction import SLOTS, Adjoint, Contraction, Point, Values, total
from .first_order import FirstOrder, without_choices

_ONE_HOT = 4
"""How many output elements a thorough check takes alone."""


class Problem(Contraction):
    """A function at a point, and the questions to the witnesses of its gradient.

    Each question returns one answer per input. ``first_order`` is the first one to ask.
    """

    extrapolates = True
    """Whether outputs are computed in float64, so that differences can be extrapolated along lines."""
    no_jax = ""
    """Why JAX's own derivative cannot be a witness; empty if it can."""
    _first: FirstOrder

    def __init__(self, values: Values, point: Sequence[Any], seed: int, cotangent: Any = None) -> None:
        super().__init__(values, point, seed, cotangent)
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

    def _by_both(self, rule_set: str) -> list[Answer]:
        self._first = FirstOrder(self, rule_set, lines=self.extrapolates)
        return self._first.answers()

    @property
    def smooth(self) -> bool:
        """Whether no kink was found at the point."""
        return self._first.smooth

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

    def second_order(self, rule_set: str) -> list[Answer]:
        """The difference between second derivatives by rule and by JAX, reverse over reverse; none at a kink.

        A square of the output is added to the loss, so that the rule is also differentiated with respect to
        its adjoint. Answers are empty where rule or JAX cannot be differentiated twice.
        """
        if self.no_jax or not self.smooth:
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
            Answer({"zero": relative(g, 0 * g, scale)})
            for g, scale in zip(found, self._first.scales, strict=True)
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
            for e, a, h, scale in zip(eager, again, here, self._first.scales, strict=True)
        ]

    def repeated(self, rule_set: str) -> list[Answer]:
        """How far the compiled gradient is from itself computed again, also on the last of several
        devices."""
        given = [self.point] * SLOTS, [self.adjoint] * SLOTS
        runs = [*self.gradients(rule_set, *given), *self.gradients(rule_set, *given)]
        answers = [
            Answer({"repeat": max(_unlike(run[0][i], runs[0][0][i], scale) for run in runs)})
            for i, scale in enumerate(self._first.scales)
        ]
        others = jax.local_devices()[1:]
        if not others:
            return answers
        gradient = self.gradient(rule_set)
        here = self.run(gradient, self.point)
        there = self.run(gradient, jax.device_put(self.point, others[-1]))
        return [
            Answer({"repeat": max(answer.differences["repeat"], _unlike(h, t, scale))})
            for answer, h, t, scale in zip(answers, here, there, self._first.scales, strict=True)
        ]

    # -- cotangents

    def _one_hot(self, most: int) -> list[Adjoint]:
        """Adjoints of a single output element each, at most ``most`` of them, drawn without repetition."""
        sizes = [0 if a is None else a.size for a in self.adjoint]
        starts = np.cumsum([0, *sizes])
        drawn = self.random.choice(starts[-1], min(most, starts[-1]), replace=False) if starts[-1] else []
        found = []
        for place in sorted(drawn):
            k = int(np.searchsorted(starts, place, side="right")) - 1
            one: Adjoint = [None if a is None else np.zeros(a.shape) for a in self.adjoint]
            one[k].reshape(-1)[place - starts[k]] = 1.0
            found.append(one)
        return found

    def _apart(self, i: int, found: Sequence[Any]) -> float:
        """The largest relative difference from rule to JAX for the i-th input, without choices at kinks."""
        choices = self._first.choices[i]
        return max(
            relative(*without_choices(choices, by_rule[i], by_jax[i]), scales(by_jax, magnitude)[i])
            for by_rule, by_jax, magnitude in found
        )

    def _in_a_loop(self, points: Point, rule_set: str) -> jax.Array:
        def step(sum_: jax.Array, point: Point) -> tuple[jax.Array, None]:
            return sum_ + self.loss(point, rule_set), None

        return jax.lax.scan(step, jnp.zeros(()), points)[0]


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
