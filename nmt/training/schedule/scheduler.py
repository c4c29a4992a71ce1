"""``Scheduler``: counts, learning rate, log lines, and when to save, validate and stop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from nmt.settings.training import TrainOptions
from nmt.text.lines import STANDARD_INPUT
from nmt.training.schedule.display import Display, DisplayRecord, LogicalEpoch, Stopping
from nmt.training.schedule.divergence import Divergence, GradientNorms
from nmt.training.schedule.learning_rate import LearningRate
from nmt.training.schedule.state import NEVER, TrainingState, Unit, period, progress
from nmt.training.update import UpdateResult

logger = logging.getLogger(__name__)

IN_FLIGHT = 2
"""The number of updates in flight: the device computes one while the next is queued. More would not be
faster, but would hold memory and delay the reaction to signals."""


class _Pending(NamedTuple):
    """An update whose figures have not been fetched yet."""

    result: UpdateResult
    number: int
    throw: bool
    """Whether the update reached the progress at which a diagnostic divergence is raised."""


class Scheduler:
    """Tracks training in a ``TrainingState``, as Marian's scheduler does.

    Counts and the learning rate do not depend on results of the device, so one update can be queued while the
    previous one is computed: ``update`` returns once all earlier updates are done. Log lines, validation and
    checkpoints wait for the queued update, too. Costs and norms are summed in order in float32, so the sums
    do not depend on when they are fetched. The first cost that is not finite is logged as a warning.

    Parameters:
        options: with ``no-restore-corpus`` the counts of the epoch and of the next log line are reset. If the
            data can be read only once (``--tsv`` from standard input), training ends with the first epoch.
        state: updated in place. If it was read from a file, its learning rate stays until after the first
            update.
        stalled: returns a state's number of stalled validations, as ``--early-stopping-on`` defines it; None
            without validation.
        clock: seconds, for the speed in the log.
        on_display: called with the figures of each log line; may be set later.

    Raises OptionError for invalid values.
    """

    def __init__(
        self,
        options: TrainOptions,
        state: TrainingState,
        *,
        stalled: Callable[[TrainingState], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_display: Callable[[DisplayRecord], None] | None = None,
    ) -> None:
        if state.loaded and options.no_restore_corpus:
            # Marian keeps the batches, so that its next run skips as many more of the new epoch.
            state.samples = state.batches_epoch = 0
            state.clear_display()
        self.state = state
        self._epoch = epoch = LogicalEpoch(options.logical_epoch)
        self._learning_rate, self._display = LearningRate(options), Display(options, epoch)
        self._stopping, self._first = Stopping(options, epoch), options.disp_first
        self._display_freq = period(options.disp_freq, "--disp-freq")
        self._save_freq = period(options.save_freq, "--save-freq")
        self._valid_freq = period(options.valid_freq, "--valid-freq")
        self._replace_freq = NEVER
        if options.exponential_smoothing:
            name = "--exponential-smoothing-replace-freq"
            self._replace_freq = period(options.exponential_smoothing_replace_freq, name)
        self._norms = GradientNorms(options.gradient_norm_average_window)
        self._divergence = Divergence.from_words(options.throw_on_divergence)
        self._mini_batch_warmup = progress(options.mini_batch_warmup, "--mini-batch-warmup")
        self._once = options.tsv and options.train_sets[0] in STANDARD_INPUT
        self._ended = self._warned = False
        self._stalled, self.on_display = stalled, on_display
        self._clock, self._since = clock, clock()
        self._pending: list[_Pending] = []
        if not state.loaded:
            self._learning_rate.set(state)

    @property
    def learn_rate(self) -> float:
        """The learning rate of the next update."""
        return self.state.eta

    @property
    def reset_optimizer(self) -> bool:
        """Whether to reset the optimizer now; check it after ``update``, ``new_epoch`` and ``new_stalled``,
        before saving."""
        return self.state.reset

    def batch_size_multiplier(self) -> float:
        """The size of the next update as a fraction of its full size.

        ``min(1, p / W)`` after p updates or epochs, where W is ``--mini-batch-warmup``, or the square root of
        that if W counts target words.
        """
        n, unit = self._mini_batch_warmup
        if not n:
            return 1.0
        done = self.state.progress_in(unit) / n
        return min(1.0, math.sqrt(done) if unit is Unit.LABELS else done)

    def started(self) -> None:
        """Log that training starts, and measure the time of the first line from now on."""
        self._since = self._clock()
        if self._divergence:
            self._divergence.announce()
        logger.info("Training started")

    def finished(self, interrupted: bool) -> None:
        """Log that training is over, or was interrupted by a signal.

        Raises DivergenceError.
        """
        self.settle()
        logger.info("Training interrupted (via signal)." if interrupted else "Training finished")

    def keep_going(self) -> bool:
        """Whether to continue with another update or epoch."""
        stalled = self._stalled(self.state) if self._stalled else 0
        return not self._ended and not self._stopping.reached(self.state, stalled)

    def update(self, result: UpdateResult) -> None:
        """Count an update, set the learning rate of the next one, and log a line if due.

        Waits until fewer than ``IN_FLIGHT`` updates are pending. Raises DivergenceError for this update or a
        pending one.
        """
        state = self.state
        state.remember()
        state.disp_updates += 1
        state.disp_samples += result.sentences
        state.disp_words += result.words
        state.samples += result.sentences
        state.labels_total += result.words
        state.batches += 1
        state.batches_epoch += result.batches
        state.loaded = state.validated = False
        self._learning_rate.after_update(state)
        throws = self._divergence is not None and state.entered_new_period_of(self._divergence.throw_after)
        self._pending.append(_Pending(result, state.batches, throws))
        displays = state.entered_new_period_of(self._display_freq) or state.batches <= self._first
        if displays or self.saving or self.validating:
            self.settle()
        else:
            self._settle(len(self._pending) - IN_FLIGHT + 1)
        if displays:
            self._show(result.words)

    def settle(self) -> None:
        """Wait for pending updates and add their figures to the state. Raises DivergenceError."""
        self._settle(len(self._pending))

    def _settle(self, count: int) -> None:
        """Wait for the oldest ``count`` pending updates and add their figures to the state."""
        state, pending, self._pending = self.state, self._pending[:count], self._pending[count:]
        figures = jax.device_get(
            [(each.result.cost, each.result.labels, each.result.gradient_norm) for each in pending]
        )
        with np.errstate(all="ignore"):
            for each, (cost, labels, norm) in zip(pending, figures, strict=True):
                cost, labels = np.float32(cost), np.float32(labels)
                self._check_cost(cost, each.number)
                state.cost_sum = float(np.float32(state.cost_sum) + cost)
                state.cost_count = float(np.float32(state.cost_count) + labels)
                if self._divergence is not None:
                    self._divergence.add(state, cost / labels, each.number, each.throw)
                self._norms.add(state, np.float32(norm), each.number)

    def _check_cost(self, cost: np.float32, update: int) -> None:
        """Warn of the first cost that is not finite. Marian does not warn."""
        if self._warned or np.isfinite(cost):
            return
        self._warned = True
        logger.warning(
            "[scheduler] The cost of update %d is %s; this is the only warning. Unless such updates are "
            "skipped (--check-gradient-nan, --cost-scaling), parameters are useless from now on",
            update,
            cost,
        )

    def new_epoch(self) -> None:
        """Log the end of an epoch, and begin the next. Raises DivergenceError."""
        self.settle()
        state = self.state
        logger.info("Seen %s samples", f"{state.samples:,}")
        state.epochs += 1
        state.loaded = False
        self._ended = self._once
        self._learning_rate.after_epoch(state)
        state.samples = state.batches_epoch = 0
        logger.info("Starting data epoch %d in logical epoch %s", state.epochs, self._epoch.text(state))

    @property
    def saving(self) -> bool:
        """Whether a checkpoint is due after the last update."""
        return self.state.entered_new_period_of(self._save_freq)

    @property
    def validating(self) -> bool:
        """Whether validation is due after the last update."""
        return self.state.entered_new_period_of(self._valid_freq)

    @property
    def replacing_with_smoothed(self) -> bool:
        """Whether to replace the parameters by the smoothed ones after the last update."""
        return self.state.entered_new_period_of(self._replace_freq)

    def new_stalled(self, stalled: int) -> None:
        """React to a validation that increased the number of stalled ones."""
        state = self.state
        state.stalled = stalled
        if stalled > state.stalled_max:
            state.stalled_max += 1
        self._learning_rate.after_stalled(state)

    def _show(self, batch_labels: int) -> None:
        now = self._clock()
        record = self._display.record(self.state, batch_labels, now - self._since)
        logger.info("%s", self._display.line(self.state, record))
        if self.on_display:
            self.on_display(record)
        self._since = now
        self.state.clear_display()
