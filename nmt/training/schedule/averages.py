"""Exponential moving averages of what updates report, in float32 as Marian has them."""

from __future__ import annotations

import numpy as np

from nmt.training.schedule.state import TrainingState


def weight(window: int, updates: int) -> np.float32:
    """How much of the newest value goes into an average: 2 / (n + 1) with n the window, or the updates so far
    if those are fewer. About 90 % of the average are then the newest n values."""
    return np.float32(2) / np.float32(min(window, updates) + 1)


def moved(average: float, value: np.float32, share: np.float32) -> tuple[float, np.float32]:
    """The new average, and how far the value was from the old one."""
    distance = value - np.float32(average)
    return float(np.float32(average) + share * distance), distance


def moved_variance(variance: float, distance: np.float32, share: np.float32) -> float:
    """The new variance: (1 - a) (v + a d^2)."""
    return float((np.float32(1) - share) * (np.float32(variance) + share * distance * distance))


class GradientNorms:
    """Averages the norm of gradients and its logarithm in a state (``--gradient-norm-average-window``)."""

    def __init__(self, window: int) -> None:
        self._window = window

    def add(self, state: TrainingState, norm: np.float32, updates: int) -> None:
        """Take in the norm of an update; 0, of an update that was skipped, does not count."""
        if norm == 0:
            return
        share = weight(self._window, updates)
        state.gradient_norm_avg, distance = moved(state.gradient_norm_avg, norm, share)
        state.gradient_norm_var = moved_variance(state.gradient_norm_var, distance, share)
        logarithm = np.float32(np.log(np.float64(norm)))
        state.log_gradient_norm_avg, distance = moved(state.log_gradient_norm_avg, logarithm, share)
        state.log_gradient_norm_var = moved_variance(state.log_gradient_norm_var, distance, share)
