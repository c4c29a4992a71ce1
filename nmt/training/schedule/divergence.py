"""Moving averages of the figures of updates, and detection of divergence."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from mgraph.errors import MGraphError
from nmt.settings.option import OptionError, number, options_of
from nmt.settings.training import Numerics
from nmt.training.schedule.state import NEVER, Progress, TrainingState, period

logger = logging.getLogger(__name__)


def weight(window: int, updates: int) -> np.float32:
    """The weight of the newest value in an average: 2 / (n + 1), n the window or the updates so far if fewer.
    The newest n values then make up about 90 % of the average."""
    return np.float32(2) / np.float32(min(window, updates) + 1)


def moved(average: float, value: np.float32, share: np.float32) -> tuple[float, np.float32]:
    """The new average, and the distance of the value from the old one."""
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
        """Add the norm of an update; 0 means that the update was skipped, and is ignored."""
        if norm == 0:
            return
        share = weight(self._window, updates)
        state.gradient_norm_avg, distance = moved(state.gradient_norm_avg, norm, share)
        state.gradient_norm_var = moved_variance(state.gradient_norm_var, distance, share)
        logarithm = np.float32(np.log(np.float64(norm)))
        state.log_gradient_norm_avg, distance = moved(state.log_gradient_norm_avg, logarithm, share)
        state.log_gradient_norm_var = moved_variance(state.log_gradient_norm_var, distance, share)


class DivergenceError(MGraphError, ArithmeticError):
    """Training diverges: the cost rose by more than it varies, or parameters are not finite."""


class Divergence:
    """Compares two moving averages of the cost per label in a ``TrainingState``.

    Training diverges if the fast average exceeds the slow one by more than ``tolerance`` standard deviations
    of the slow one. The first ``slow`` updates are not compared, and costs that are not finite are ignored.

    Parameters:
        slow, fast: the windows of the averages, in updates.
        throw_after: raise DivergenceError at this progress whatever the costs are, to test the fallbacks.

    Source: ``--throw-on-divergence slow fast tolerance throw_after``.
    """

    def __init__(self, slow: int, fast: int, tolerance: float, throw_after: Progress) -> None:
        self._slow, self._fast, self._tolerance = slow, fast, np.float32(tolerance)
        self.throw_after = throw_after

    def announce(self) -> None:
        """Log what is compared."""
        logger.info(
            "[scheduler] Divergence detection is enabled for slow-moving averaging window over %d steps "
            "vs fast-moving window over %d steps with tolerance of %g sigmas",
            self._slow,
            self._fast,
            self._tolerance,
        )
        if self.throw_after.n:
            logger.warning(
                "[scheduler] Diagnostic DivergenceException will be thrown when training reaches %s",
                self.throw_after,
            )

    @classmethod
    def from_words(cls, words: Sequence[str]) -> Divergence | None:
        """From the values of ``--throw-on-divergence``; None if empty, OptionError if one is not a number.

        Missing values are those that the option has when it is given without values.
        """
        option = "--throw-on-divergence"
        if not words:
            return None
        if len(words) > 4:
            raise OptionError(f"{option}: expected at most four values, got {len(words)}")
        defaults = (options_of(Numerics)["throw-on-divergence"].implicit or "").split()
        numbers = (*words[:3], *defaults[len(words) :])
        try:
            slow, fast, tolerance = int(numbers[0]), int(numbers[1]), number(numbers[2])
            if slow < 0 or fast < 0 or not tolerance >= 0:
                raise ValueError
        except ValueError:
            raise OptionError(
                f"{option}: expected two numbers of updates, then standard deviations; got {' '.join(words)}"
            ) from None
        after = period(words[3], option) if len(words) > 3 else NEVER
        return cls(slow, fast, tolerance, after)

    def add(self, state: TrainingState, cost: np.float32, updates: int, throw: bool) -> None:
        """Add the cost per label of an update, in nats, to the averages of ``state``.

        Parameters:
            updates: the number of updates including this one.
            throw: whether this update reached ``throw_after``.

        Raises DivergenceError.
        """
        if not np.isfinite(cost):
            return
        if state.loss_avg_slow == 0:
            state.loss_avg_slow = state.loss_avg_fast = float(cost)
            state.loss_var_slow = 0.0
        if updates > self._slow:
            self._compare(state)
        if throw:
            logger.warning("Training reached %s; throwing diagnostic DivergenceException", self.throw_after)
            raise DivergenceError(_message(state, np.float32(0), np.float32(0)))
        slow, fast = weight(self._slow, updates), weight(self._fast, updates)
        state.loss_avg_slow, distance = moved(state.loss_avg_slow, cost, slow)
        state.loss_var_slow = moved_variance(state.loss_var_slow, distance, slow)
        state.loss_avg_fast, _ = moved(state.loss_avg_fast, cost, fast)

    def _compare(self, state: TrainingState) -> None:
        delta = np.float32(state.loss_avg_fast) - np.float32(state.loss_avg_slow)
        sigma = np.sqrt(np.float32(state.loss_var_slow))
        if delta > 0 and sigma > 0 and delta / sigma > self._tolerance:
            message = _message(state, delta, delta / sigma)
            logger.warning("%s", message)
            raise DivergenceError(message)


def _message(state: TrainingState, delta: np.float32, sigmas: np.float32) -> str:
    return (
        f"Detected training divergence: slow-moving average loss {state.loss_avg_slow:.4f} exceeded by "
        f"fast-moving average loss {state.loss_avg_fast:.4f} by {delta:.4f} = {sigmas:.4f} * sigmas"
    )
