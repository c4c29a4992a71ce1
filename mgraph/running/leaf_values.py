"""``LeafValues``: the values of a tape's leaves in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .. import threefry
from ..draws import run_draws, run_key
from ..inits import Random
from ..node import Node
from ..scalars import number_vector
from ..specs import Spec, is_wide
from ..structure import INPUT
from ..tape import Tape
from .programs import Plan, compiled


@dataclass(frozen=True)
class DrawPlan(Plan):
    """The value of one random leaf."""

    init: Random
    spec: Spec

    def __str__(self) -> str:
        return f"a draw of {self.init!r}"

    def __call__(self, numbers: Any, draws: Any) -> Any:
        init = self.init if numbers is None else self.init.bound(numbers)
        key = threefry.fold_in(run_key(draws), draws[3])
        return init.device_value(key, self.spec.shape, self.spec.type)


class LeafValues:
    """The values of input leaves and random leaves in one run. It holds neither tape nor run, so it keeps
    neither alive.
    """

    def __init__(self, tape: Tape[Node], seed: int, run: int, device: jax.Device | None) -> None:
        self._rows, self._random = tape.rows, tape.random
        self._seed, self._run, self._device = seed, run, device
        self._drawn: dict[int, Any] = {}

    def draws(self, ordinals: Sequence[int]) -> np.ndarray | None:
        """The argument of a program that draws the random leaves ``ordinals``; ``None`` if there are none."""
        return run_draws(self._seed, self._run, ordinals) if len(ordinals) else None

    def value(self, inputs: Mapping[int, Any], row: int) -> Any:
        """The value of the leaf ``row``; ``inputs`` has the values of input leaves."""
        init, spec = self._rows[row][:2]
        if init is INPUT:
            return inputs[row]
        if row not in self._drawn:
            family, numbers = init.generic or (init, ())
            plan, wide = DrawPlan(family, spec), is_wide(spec)
            draws = self.draws([self._random.index(row)])
            drawn = compiled(plan, device=self._device, wide=wide)(number_vector(numbers, wide), draws)
            self._drawn[row] = drawn
        return self._drawn[row]
