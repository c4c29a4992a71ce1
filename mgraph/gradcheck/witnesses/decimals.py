"""A problem's gradients and outputs before rounding, for differences that rounding may explain."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..references.exact_witness import ExactProgram
from ..references.numpy_primitives import NoReferenceError
from .contraction import Adjoint, Contraction, Point
from .lines import Samples

DIGITS = 60, 340
"""The digits of the decimals in which gradients and outputs are computed where in doubt, and of those that
are tried next: 1 plus the smallest normal number of float64, 2e-308, keeps 32 digits of it."""
_MOST = {60: 4096, 340: 512}
"""With up to this many input and output elements, gradients are computed in decimals of so many digits."""
_MOST_SAMPLED = {60: 256, 340: 24}
"""With up to this many, outputs along a line are."""

# A program without the rounding of float64; the rounding of a narrower type is a mistake of the rule.
_without_rounding = functools.partial(ExactProgram, keeps_types=True)


class Decimals:
    """Computes for a problem in decimals, rounded to float64 at the very end. What it returns is ``None`` if
    there are too many elements, and for functions that decimals lack."""

    def __init__(self, problem: Contraction) -> None:
        self._problem = problem
        self._gradients: dict[tuple[str, int], Point | None] = {}

    @property
    def _elements(self) -> int:
        problem = self._problem
        return sum(a.size for a in (*problem.point, *problem.adjoint) if a is not None)

    def gradient(self, rule_set: str, digits: int = DIGITS[0]) -> Point | None:
        """The gradient by a rule set."""
        if self._elements > _MOST[digits]:
            return None
        if (rule_set, digits) not in self._gradients:
            self._gradients[rule_set, digits] = self._run(self._problem.gradient(rule_set), digits)
        return self._gradients[rule_set, digits]

    def gradient_of(self, adjoint: Adjoint, digits: int) -> Point | None:
        """JAX's gradient with another adjoint."""
        return self._run(jax.grad(lambda point: self._problem.loss(point, "jax", adjoint)), digits)

    def samples(self, digits: int) -> Samples | None:
        """Gives the outputs along lines minus those at the point; it raises ``NoReferenceError`` itself for
        functions that decimals lack."""
        problem = self._problem
        if self._elements > _MOST_SAMPLED[digits]:
            return None
        nowhere = [jnp.zeros(p.shape) for p in problem.point]

        def change(point: Point, line: Point, t: jax.Array) -> jax.Array:
            return problem.sample(point, line, t) - problem.sample(point, line, jnp.zeros(()))

        program = _without_rounding(change, problem.point, nowhere, jnp.zeros(()), digits=digits)

        def samples(directions: Callable[[Any], list[Any]], offsets: Any) -> Any:
            lines = ([d[0] for d in directions([k])] for k in range(len(offsets)))
            return np.stack(
                [
                    np.stack([program(problem.point, line, t) for t in places])
                    for line, places in zip(lines, offsets, strict=True)
                ]
            )

        return samples

    def _run(self, gradient: Callable[[Point], Point], digits: int) -> Point | None:
        point = self._problem.point
        try:
            found: Point = _without_rounding(gradient, point, digits=digits)(point)
        except NoReferenceError:
            return None
        return found
