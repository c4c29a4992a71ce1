"""By what gradients are divided before an update, and how large they may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Normalization:
    """``normalize-gradient``, ``normalize-gradient-by-ratio`` and ``dynamic-gradient-scaling``.

    by_words: divide by the target words. by_ratio: divide by the words relative to their running average.
    deviations: limit the norm where it exceeds its average by so many standard deviations; 0 for no limit.
    fadeout: the updates after which that limit rises linearly, 0 for never. window: the updates before there
    is a limit (``gradient-norm-average-window``). average_words: the running average of words, 0 before the
    first update. Source: Marian, ``GraphGroup::computeNormalizationFactor``.
    """

    by_words: bool = False
    by_ratio: bool = False
    deviations: float = 0.0
    fadeout: int = 0
    window: int = 100
    average_words: float = 0.0

    def divisor(self, words: int) -> float:
        """By what the gradient of so many words is divided; the average takes account of them."""
        divisor = np.float32(words if self.by_words else 1)
        if self.by_ratio:
            own = np.float32(words)
            average = np.float32(self.average_words) or own
            average = np.float32(0.9) * average + np.float32(0.1) * own
            self.average_words = float(average)
            divisor *= own / average
        return float(divisor)

    def limit(self, number: int, average: float, variance: float) -> tuple[float, float]:
        """The average norm that the update ``number`` is held against and by how much it may exceed it."""
        before = number - 1
        if not self.deviations or before < self.window:
            return average, math.inf
        slack = max(self.fadeout, before) / self.fadeout if self.fadeout else 1.0
        return average, self.deviations * slack * math.sqrt(variance)
