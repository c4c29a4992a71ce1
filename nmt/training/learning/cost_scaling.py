"""Scaling of the cost, so that gradients of 16 bits neither vanish nor overflow (``cost-scaling``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mgraph import ArgumentError
from nmt.settings.option import number
from nmt.training.update import Tensors


class CostScale(NamedTuple):
    """State of the scaling, on the device."""

    factor: Any
    """What the cost is multiplied by; float32, shape ()."""
    clean: Any
    """Updates without overflow since the factor changed; int32, shape ()."""


@dataclass(frozen=True)
class CostScaling:
    """``cost-scaling``: the cost is multiplied by a factor, the gradient divided by it.

    factor: at first. frequency: it grows after so many updates without overflow. multiplier: by what it grows
    then, and is divided at an overflow, for which the update is skipped. minimum: it is not divided from
    there on; numbers that overflow then count as 0.
    """

    factor: float
    frequency: int = 2000
    multiplier: float = 2.0
    minimum: float = 1.0

    @classmethod
    def from_options(cls, words: Sequence[str]) -> CostScaling | None:
        """Of the value of ``cost-scaling``, up to four numbers; ``None`` if it is empty."""
        if not words:
            return None
        kinds: tuple[Callable[[str], Any], ...] = (number, int, number, number)
        try:
            numbers = [kind(word) for kind, word in zip(kinds, words, strict=False)]
        except ValueError:
            numbers = []
        if len(numbers) != len(words) or min(numbers) <= 0:
            raise ArgumentError(
                "--cost-scaling: expected a factor, a number of updates, a multiplier and a minimum, all"
                f" above 0, got {' '.join(map(str, words))}"
            )
        return cls(*numbers)

    def start(self) -> CostScale:
        """The state before the first update."""
        return CostScale(jnp.float32(self.factor), jnp.int32(0))

    def after(self, scale: CostScale, sane: Any) -> CostScale:
        """The state after an update whose gradient was ``sane`` or not."""
        clean = jnp.where(sane, scale.clean + 1, 0)
        grows = clean >= self.frequency
        grown = jnp.where(grows, scale.factor * self.multiplier, scale.factor)
        shrunk = jnp.where(scale.factor > self.minimum, scale.factor / self.multiplier, scale.factor)
        return CostScale(jnp.where(sane, grown, shrunk), jnp.where(grows, 0, clean))


def sanitized(gradients: Tensors, prune: Any, largest: float) -> Tensors:
    """Gradients with ``largest`` in the place of infinity, and 0 in that of NaN where ``prune`` is true."""

    def clean(g: Any) -> Any:
        g = jnp.where(jnp.isinf(g), jnp.sign(g) * largest, g)
        return jnp.where(jnp.isnan(g) & prune, 0, g)

    return jax.tree.map(clean, gradients)
