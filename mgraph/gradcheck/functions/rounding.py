"""The precision that a program computes in, and what agreement can mean in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from ...bridges.calls import opened, programs_in
from ...specs import is_real
from ..references.numpy_witness import CALLS
from ..report import TOLERANCES
from ..witnesses.agreement import Answer

_STEP = 2e-4
"""The step of a five-point difference in float64."""


@dataclass(frozen=True)
class Rounding:
    """Rounding to an element type, and what witnesses of a gradient can see beside it."""

    type: Any

    @property
    def epsilon(self) -> float:
        """The distance from one to the next number of the type."""
        return float(jnp.finfo(self.type).eps)

    @property
    def is_wide(self) -> bool:
        """Whether the type is float64."""
        return bool(self.type == jnp.float64)

    @property
    def step(self) -> float:
        """The best step of a five-point difference, whose error is of the order of ``h**4 + epsilon / h``."""
        return float(_STEP * (self.epsilon / jnp.finfo(jnp.float64).eps) ** 0.2)

    @property
    def exact(self) -> float:
        """The largest relative difference of gradients that are equal but for rounding."""
        return TOLERANCES["jax"] if self.is_wide else max(1e-4, 16 * self.epsilon)

    def blur(self, magnitude: float, step: float, slope: float) -> float:
        """How far, relative to a slope, five-point differences of outputs of a magnitude may be off."""
        return 10 * self.exact + 8 * self.epsilon * magnitude / (step * slope or 1e-300)

    def allows(self, answer: Answer) -> Answer:
        """What was found, with no smaller differences told from rounding than the type allows.

        ``zero`` and ``repeat`` ask for the same bits in any type; second derivatives lose ten times as much.
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
    """The coarsest type in which a program computes what depends on its inputs."""
    inputs = [v.aval.dtype for v in opened(program).invars]
    found = set(inputs)
    _collect(program, [True] * len(inputs), found)
    return max(map(Rounding, found), key=lambda rounding: rounding.epsilon)


def _collect(program: Any, moving: Sequence[bool], found: set[Any]) -> None:
    """Add the floating point types of what depends on the ``moving`` inputs of a program."""
    known = {v for v, moves in zip(opened(program).invars, moving, strict=True) if moves}
    for equation in opened(program).eqns:
        reads = [not isinstance(v, core.Literal) and v in known for v in equation.invars]
        if not any(reads):
            continue
        for inner in programs_in(equation.params.values()):
            inputs = opened(inner).invars
            same = equation.primitive.name in CALLS and len(inputs) == len(reads)
            # A state may come to depend on the inputs as a loop goes on, but no value of another type does
            # before one of that type was computed of them.
            _collect(inner, reads if same else [_type(v) in found for v in inputs], found)
        found |= {_type(v) for v in equation.outvars if _type(v) is not None and is_real(v.aval)}
        known.update(equation.outvars)


def _type(variable: Any) -> Any:
    return getattr(variable.aval, "dtype", None)
