"""Scaling of costs and gradients: ``cost-scaling``, and the options that normalize gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mgraph import ArgumentError, register_tuple
from nmt.settings.option import number
from nmt.settings.training import Numerics
from nmt.training.update import Tensors


@register_tuple
class CostScale(NamedTuple):
    """The state of cost scaling, on the device."""

    factor: Any
    """Multiplies the cost; float32, shape ()."""
    clean: Any
    """Updates without overflow since the last change of the factor; int32, shape ()."""


@dataclass(frozen=True)
class CostScaling:
    """``cost-scaling``: multiplies the cost by a factor and divides the gradient by it.

    factor: the initial factor. frequency: after this many updates without overflow the factor grows.
    multiplier: multiplies the factor when it grows, and divides it on overflow, when the update is skipped.
    minimum: at this factor it is not divided, and NaN in gradients is replaced by 0.
    """

    factor: float
    frequency: int = 2000
    multiplier: float = 2.0
    minimum: float = 1.0

    @classmethod
    def from_options(cls, words: Sequence[str]) -> CostScaling | None:
        """From the value of ``cost-scaling``, up to four numbers; ``None`` if it is empty."""
        if not words:
            return None
        kinds: tuple[Callable[[str], Any], ...] = (number, int, number, number)
        try:
            numbers = [kind(word) for kind, word in zip(kinds, words, strict=False)]
        except ValueError:
            numbers = []
        if len(numbers) != len(words) or min(numbers) <= 0 or cls(*numbers).multiplier < 1:
            raise ArgumentError(
                "--cost-scaling: expected a factor, a number of updates, a multiplier from 1, and a minimum,"
                f" all above 0, got {' '.join(map(str, words))}"
            )
        return cls(*numbers)

    def start(self) -> CostScale:
        """The state before the first update."""
        return CostScale(jnp.float32(self.factor), jnp.int32(0))

    def after(self, scale: CostScale, sane: Any) -> CostScale:
        """The state after an update whose gradient was ``sane`` or not."""
        clean = jnp.where(sane, scale.clean + 1, 0)
        grows = clean >= min(self.frequency, np.iinfo(np.int32).max)  # more than ``clean`` can count is never
        grown = jnp.where(grows, scale.factor * self.multiplier, scale.factor)
        shrunk = jnp.where(scale.factor > self.minimum, scale.factor / self.multiplier, scale.factor)
        return CostScale(jnp.where(sane, grown, shrunk), jnp.where(grows, 0, clean))


def sanitized(gradients: Tensors, prune: Any, largest: float) -> Tensors:
    """Replace infinity by ``largest``, and NaN by 0 if ``prune``."""

    def clean(g: Any) -> Any:
        g = jnp.where(jnp.isinf(g), jnp.sign(g) * largest, g)
        return jnp.where(jnp.isnan(g) & prune, 0, g)

    return jax.tree.map(clean, gradients)


@dataclass
class Normalization:
    """``normalize-gradient``, ``normalize-gradient-by-ratio`` and ``dynamic-gradient-scaling``.

    by_words: divide by the target words. by_ratio: divide by the words relative to their running average.
    deviations: limit the norm to its average plus this many standard deviations; None for no limit. fadeout:
    the limit rises linearly after this many updates; 0 for never. window: updates without a limit at the
    start (``gradient-norm-average-window``). average_words: the running average of words, 0 before the first
    update. Source: Marian, ``GraphGroup::computeNormalizationFactor``.
    """

    by_words: bool = False
    by_ratio: bool = False
    deviations: float | None = None
    fadeout: int = 0
    window: int = Numerics.gradient_norm_average_window
    average_words: float = 0.0

    def count(self, words: int) -> float:
        """Add an update with ``words`` target words to ``average_words``; return its gradient's divisor."""
        divisor = np.float32(words if self.by_words else 1)
        if self.by_ratio:
            own = np.float32(words)
            average = np.float32(self.average_words) or own
            average = np.float32(0.9) * average + np.float32(0.1) * own
            self.average_words = float(average)
            divisor *= own / average
        return float(divisor)

    def limit(self, number: int, average: float, variance: float) -> tuple[float, float]:
        """The reference norm for update ``number``, and how far the update's norm may exceed it."""
        before = number - 1
        if self.deviations is None or before < self.window:
            return average, math.inf
        slack = max(self.fadeout, before) / self.fadeout if self.fadeout else 1.0
        return average, self.deviations * slack * math.sqrt(variance)
