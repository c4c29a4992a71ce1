"""Plans: what a compiled program of a tape computes. A plan is both the function and its key in the cache.

Plans consist of rows, generic operators, shapes and flags; values, and the numbers of operators, are
arguments. So a plan holds no graph, and a graph that is rebuilt, even with other numbers, finds the program
of an equal plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..draws import random_sources
from ..rules import without_float0
from ..scalars import weak_scalars
from ..specs import Specs
from ..structure import Structure
from ..tracing.adjoints import are_finite, clipped
from ..tracing.trace import Checkpoints, trace
from .programs import Plan

Leaves = Sequence[Any]


class Results(NamedTuple):
    """What a program returns."""

    values: list[Any]
    """Values of the requested rows."""
    gradients: list[Any]
    """Gradients with respect to the trained input rows."""
    probes: dict[int, Any]
    """Gradients with respect to the rows that are shown to the user."""
    finite: Any
    """For each row, whether its value is finite, if that is watched."""
    finite_gradients: Any


@dataclass(frozen=True)
class ForwardPlan(Plan):
    """The values of some rows."""

    structure: Structure
    outputs: tuple[int, ...]
    rule_set: str
    watch: bool = False
    labels: bool = False
    """Whether XLA is told which row each instruction comes from."""

    def __str__(self) -> str:
        return f"forward of {len(self.structure.rows)} nodes"

    def __call__(self, leaves: Leaves, numbers: Any, draws: Any) -> Results:
        random = random_sources(draws)
        values = trace(
            self.structure, leaves, numbers=numbers, rule_set=self.rule_set, labels=self.labels, **random
        )
        finite = are_finite(values) if self.watch else None
        return Results([values[i] for i in self.outputs], [], {}, finite, None)


@dataclass(frozen=True)
class JointPlan(Plan):
    """The values of some rows and the gradients of the sum of ``top``, in one program."""

    structure: Structure
    outputs: tuple[int, ...]
    rule_set: str
    top: int
    trained: tuple[int, ...]
    """Positions of the inputs whose gradients are wanted."""
    shown: tuple[tuple[int, Specs], ...] = ()
    """Other rows whose gradients are wanted."""
    clip: bool = False
    """Whether gradients are clipped elementwise, to a bound that is an argument."""
    clipped: tuple[int, ...] = ()
    """Inputs whose gradient is clipped here; a parameter's is clipped once it is accumulated."""
    checkpoints: Checkpoints | None = None
    watch: bool = False
    labels: bool = False

    def __str__(self) -> str:
        return f"forward and backward of {len(self.structure.rows)} nodes"

    def __call__(self, leaves: Leaves, numbers: Any, draws: Any, clip_values: Any = None) -> Results:
        """``clip_values``: a vector with the bound for gradients; ``None`` without ``clip``."""
        clip_value = weak_scalars(clip_values)[0] if self.clip else None

        def loss(trained: list[Any], probes: Any, taps: Any) -> tuple[Any, Any]:
            full = list(leaves)
            for k, value in zip(self.trained, trained, strict=True):
                full[k] = value
            values = trace(
                self.structure,
                full,
                numbers=numbers,
                rule_set=self.rule_set,
                probes=probes,
                taps=taps,
                clip_value=clip_value,
                checkpoints=self.checkpoints,
                labels=self.labels,
                **random_sources(draws),
            )
            finite = are_finite(values) if self.watch else None
            return values[self.top], ([values[i] for i in self.outputs], finite)

        arguments = [leaves[k] for k in self.trained], {i: _zeros(s) for i, s in self.shown}, self._taps()
        value, pull, (outputs, finite) = jax.vjp(loss, *arguments, has_aux=True)
        gradients, probes, taps = pull(jnp.ones_like(value))
        gradients = [
            clipped(clip_value, gradient) if k in self.clipped else gradient
            for k, gradient in zip(self.trained, gradients, strict=True)
        ]
        return Results(outputs, gradients, without_float0(probes), finite, taps == 0 if self.watch else None)

    def _taps(self) -> Any:
        return jnp.zeros(len(self.structure.rows), jnp.float32) if self.watch else None


@dataclass(frozen=True)
class AccumulationPlan(Plan):
    """Gradients added to the accumulated ones, by name."""

    clip: bool
    """Whether the sums are clipped elementwise, to a bound that is an argument."""

    def __str__(self) -> str:
        return "accumulation of gradients"

    def __call__(
        self, new: Mapping[str, Any], old: Mapping[str, Any], clip_values: Any = None
    ) -> dict[str, Any]:
        total = {name: g + old[name] if name in old else g for name, g in new.items()}
        return clipped(weak_scalars(clip_values)[0], total) if self.clip else total


def _zeros(spec: Any) -> Any:
    if isinstance(spec, tuple):
        return tuple(_zeros(s) for s in spec)
    return jnp.zeros(spec.shape, spec.type.dtype)
