"""The precision that a program computes in, and what agreement can mean in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from ..report import TOLERANCES
from ..witnesses.agreement import Answer
from ..witnesses.five_point import STEP
from ..witnesses.narrow import narrowest_type


@dataclass(frozen=True)
class Rounding:
    """Rounding to an element type, and what witnesses of a gradient can still see."""

    type: Any

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number of the type."""
        return float(jnp.finfo(self.type).eps)

    @property
    def is_wide(self) -> bool:
        """Whether the type is float64."""
        return bool(self.type == jnp.float64)

    @property
    def step(self) -> float:
        """The best step of a five-point difference, whose error is of the order of ``h**4 + epsilon / h``."""
        return float(STEP * (self.epsilon / jnp.finfo(jnp.float64).eps) ** 0.2)

    @property
    def exact(self) -> float:
        """The largest relative difference between gradients that differ only by rounding."""
        return TOLERANCES["jax"] if self.is_wide else max(1e-4, 16 * self.epsilon)

    def blur(self, magnitude: float, step: float, slope: float) -> float:
        """How far five-point differences of outputs of a ``magnitude`` may be off, relative to a
        ``slope``."""
        return 10 * self.exact + 8 * self.epsilon * magnitude / (step * slope or 1e-300)

    def allows(self, answer: Answer) -> Answer:
        """The answer, with the limits that the type's rounding allows.

        ``zero`` and ``repeat`` ask for the same bits in any type; second derivatives may be off ten times as
        far.
        """
        if self.is_wide:
            return answer
        limits = {
            witness: self.exact * (10 if witness == "second" else 1)
            for witness in answer.differences
            if witness not in ("zero", "repeat")
        }
        return replace(answer, allowed={**limits, **answer.allowed})


def narrowest(program: Any) -> Rounding:
    """Rounding to the least precise type in which a program computes anything that depends on its inputs."""
    return Rounding(narrowest_type(program))
