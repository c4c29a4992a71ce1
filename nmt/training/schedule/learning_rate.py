"""The learning rate: warm-up, inverse square root, decay."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np

from nmt.settings.option import OptionError
from nmt.settings.train import check_decay
from nmt.settings.training import TrainOptions
from nmt.training.schedule.optax_schedule import OptaxSchedule
from nmt.training.schedule.state import Progress, TrainingState, period, progress

logger = logging.getLogger(__name__)


class LearningRate:
    """Updates the learning rate in a ``TrainingState``.

    With p the progress in the unit of the option (updates, target words or epochs), all in float32,

        rate = (s + (b - s) min(1, (p - p0) / W)) sqrt(N / (p - S + N)) f

    where b is the base rate (``--learn-rate``); s the rate at the start of the warm-up
    (``--lr-warmup-start-rate``), which began at p0 and lasts W (``--lr-warmup``); N the scale of the inverse
    square root, which applies for p > S (``--lr-decay-inv-sqrt N S``, S defaults to N); f the product of all
    decays. The rate is computed after each update for the next one; the first update has p = 0.

    The warm-up restarts with ``--lr-warmup-cycle`` whenever W is over; with ``--lr-warmup-at-reload`` after
    the first update of this run, resumed or not; with ``--lr-decay-repeat-warmup`` after each decay. As in
    Marian, a restart affects the rate only from the next update on.

    ``--lr-decay`` is the factor of a decay. ``--lr-decay-strategy`` says when it happens, with S the first
    value of ``--lr-decay-start``: ``epoch`` at the start of each epoch from S on; ``batches`` after update S
    and then every ``--lr-decay-freq`` updates; ``stalled`` when validation has stalled S times, 2 S times and
    so on; ``epoch+batches`` and ``epoch+stalled`` at the start of an epoch, from S on or once the number of
    updates or stalls has reached the second value of ``--lr-decay-start``. With
    ``--lr-decay-reset-optimizer`` each decay also sets ``TrainingState.reset``.

    With ``--lr-schedule`` the rate is that of an optax schedule times f.

    Raises OptionError for unknown units, units that differ and unknown strategies, and the errors of
    ``OptaxSchedule``.

    Source: Marian's scheduler; the warm-up and the root are those of Vaswani et al. 2017, section 5.3.
    """

    def __init__(self, options: TrainOptions) -> None:
        self._options = options
        self._base = np.float32(options.learn_rate)
        self._start_rate = np.float32(options.lr_warmup_start_rate)
        self._warmup = (period if options.lr_warmup_cycle else progress)(options.lr_warmup, "--lr-warmup")
        self._root, self._root_start = _inverse_square_root(options.lr_decay_inv_sqrt)
        if options.lr_decay:
            check_decay(options.lr_decay_strategy, options.lr_decay_start)
        self._schedule = OptaxSchedule(options) if options.lr_schedule else None
        self._first = True

    def set(self, state: TrainingState) -> None:
        """Set the rate of the next update.

        Raises OptionError if the state's warm-up has another unit than ``--lr-warmup``.
        """
        decays = np.float32(state.eta_factor)
        if self._schedule is not None:
            state.eta = float(self._schedule.rate(state.batches) * decays)
            return
        factor = np.float32(1)
        if self._warmup.n:
            if state.warmup_start.n and state.warmup_start.unit is not self._warmup.unit:
                raise OptionError(
                    f"--lr-warmup: expected the unit of the current warm-up, which began at "
                    f"{state.warmup_start}; got {self._warmup}"
                )
            done = state.progress_in(self._warmup.unit) - state.warmup_start.n
            if 0 <= done < self._warmup.n:
                factor = np.float32(done) / np.float32(self._warmup.n)
        rate = self._start_rate + (self._base - self._start_rate) * factor
        state.eta = float(rate * self._root_factor(state) * decays)

    def after_update(self, state: TrainingState) -> None:
        """Set the rate after an update that was counted, and decay or restart the warm-up if due."""
        state.reset = False
        self.set(state)
        if self._options.lr_decay > 0 and self._options.lr_decay_strategy == "batches":
            start, freq = self._options.lr_decay_start[0], self._options.lr_decay_freq
            if 0 < start <= state.batches and (state.batches - start) % freq == 0:
                self._apply_decay(state, f"after {state.batches} batches")
        if self._first and self._options.lr_warmup_at_reload:
            self._restart_warmup(state)
        if self._options.lr_warmup_cycle and state.entered_new_period_of(self._warmup):
            state.warmup_start = self._now(state)
        self._first = False

    def after_epoch(self, state: TrainingState) -> None:
        """Set the rate at the start of the epoch ``state.epochs``, and decay if due."""
        self.set(state)
        if self._options.lr_decay > 0:
            state.reset = False
            if self._options.lr_decay_strategy.startswith("epoch") and self._decays_in_epoch(state):
                self._apply_decay(state, f"in epoch {state.epochs}")

    def after_stalled(self, state: TrainingState) -> None:
        """Set the rate after a validation that stalled, and decay if due."""
        state.reset = False
        self.set(state)
        if self._options.lr_decay > 0 and self._options.lr_decay_strategy == "stalled":
            start = self._options.lr_decay_start[0]
            if start and state.stalled and state.stalled % start == 0:
                self._apply_decay(state, f"after having stalled {state.stalled} time(s)")

    def _root_factor(self, state: TrainingState) -> np.float32:
        done = state.progress_in(self._root.unit)
        if not self._root.n or done <= self._root_start:
            return np.float32(1)
        return np.float32(math.sqrt(self._root.n / (done - self._root_start + self._root.n)))

    def _decays_in_epoch(self, state: TrainingState) -> bool:
        totals = {"batches": state.batches, "stalled": state.stalled_max}
        conditions = [(self._options.lr_decay_start[0], state.epochs)]
        if "+" in self._options.lr_decay_strategy:
            conditions.append(
                (self._options.lr_decay_start[1], totals[self._options.lr_decay_strategy.split("+")[1]])
            )
        return any(0 < start <= total for start, total in conditions)

    def _apply_decay(self, state: TrainingState, occasion: str) -> None:
        state.eta_factor = float(np.float32(state.eta_factor) * np.float32(self._options.lr_decay))
        self.set(state)
        logger.info("Decaying learning rate to %g %s", state.eta, occasion)
        state.reset = self._options.lr_decay_reset_optimizer
        if state.reset:
            logger.info("Resetting optimizer statistics")
        if self._options.lr_decay_repeat_warmup:
            self._restart_warmup(state)

    def _restart_warmup(self, state: TrainingState) -> None:
        logger.info("Restarting learning rate warmup")
        state.warmup_start = self._now(state)

    def _now(self, state: TrainingState) -> Progress:
        return Progress(state.progress_in(self._warmup.unit), self._warmup.unit)


def _inverse_square_root(given: Sequence[str]) -> tuple[Progress, int]:
    """N and S of the inverse square root, see ``LearningRate``."""
    if not 1 <= len(given) <= 2:
        raise OptionError(f"--lr-decay-inv-sqrt: expected one or two numbers with units, got {len(given)}")
    scale, *rest = [progress(text, "--lr-decay-inv-sqrt") for text in given]
    start = rest[0] if rest else scale
    if start.n and start.unit is not scale.unit:
        raise OptionError(f"--lr-decay-inv-sqrt: expected two numbers in one unit, got {' '.join(given)}")
    return scale, start.n
