"""The learning rate: warm-up, inverse square root, decay."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nmt.settings.checks import check_decay
from nmt.settings.option import OptionError
from nmt.training.schedule.state import TrainingState
from nmt.training.schedule.units import Progress, period, progress

logger = logging.getLogger(__name__)


class LearningRate:
    """Sets the learning rate in a ``TrainingState`` as training goes on.

    With p the progress in the unit of the option (updates, target words or epochs), all in float32,

        rate = (s + (b - s) min(1, (p - p0) / W)) sqrt(N / (p - S + N)) f

    where b is the learning rate asked for, s that at the start of the warm-up, which began at p0 and lasts W;
    the root, N its scale, is there only from p > S on; f is the product of all decays. It is evaluated after
    each update, for the next: the first update is made with p = 0.

    Parameters:
        learn_rate: b (``--learn-rate``).
        warmup, warmup_start_rate: W (``--lr-warmup``) and s (``--lr-warmup-start-rate``).
        warmup_cycle: begin the warm-up anew each time that W is over (``--lr-warmup-cycle``).
        warmup_at_reload: begin it anew after the first update of this run, be it resumed or not
            (``--lr-warmup-at-reload``).
        decay_inv_sqrt: N, and S if it is not N (``--lr-decay-inv-sqrt``).
        decay: the factor of a decay; 0 for none (``--lr-decay``).
        decay_strategy: when decays happen (``--lr-decay-strategy``). With S the first of ``decay_start``
            (``--lr-decay-start``): ``epoch`` at the beginning of each epoch from S on; ``batches`` after
            update S and each ``decay_freq`` (``--lr-decay-freq``) updates more; ``stalled`` when validation
            has stalled S times, 2 S times and so on; ``epoch+batches`` and ``epoch+stalled`` at the beginning
            of each epoch from S on, or once the total of the other has reached the second of ``decay_start``.
        decay_reset_optimizer: after a decay ``TrainingState.reset`` asks for the optimizer to be reset
            (``--lr-decay-reset-optimizer``).
        decay_repeat_warmup: begin the warm-up anew after a decay (``--lr-decay-repeat-warmup``).

    A warm-up that begins anew shows only in the rate that is set after the next update, as in Marian.

    Raises OptionError for amounts with an unknown unit, for units that differ and for unknown strategies.

    Source: Marian's scheduler; the warm-up and the root are those of Vaswani et al. 2017, section 5.3.
    """

    def __init__(
        self,
        *,
        learn_rate: float,
        warmup: str = "0",
        warmup_start_rate: float = 0.0,
        warmup_cycle: bool = False,
        warmup_at_reload: bool = False,
        decay_inv_sqrt: Sequence[str] = ("0",),
        decay: float = 0.0,
        decay_strategy: str = "epoch+stalled",
        decay_start: Sequence[int] = (10, 1),
        decay_freq: int = 50000,
        decay_reset_optimizer: bool = False,
        decay_repeat_warmup: bool = False,
    ) -> None:
        self._base, self._start_rate = np.float32(learn_rate), np.float32(warmup_start_rate)
        self._warmup = (period if warmup_cycle else progress)(warmup, "--lr-warmup")
        self._cycle, self._at_reload = warmup_cycle, warmup_at_reload
        self._root, self._root_start = _inverse_square_root(decay_inv_sqrt)
        self._decay, self._strategy = np.float32(decay), decay_strategy
        self._decay_start, self._decay_freq = tuple(decay_start), decay_freq
        self._reset_optimizer, self._repeat_warmup = decay_reset_optimizer, decay_repeat_warmup
        if decay:
            check_decay(decay_strategy, self._decay_start)
        self._first = True

    @classmethod
    def from_options(cls, values: Mapping[str, Any]) -> LearningRate:
        """By ``learn-rate`` and the options whose names begin with ``lr-``."""
        names = (
            "warmup warmup_start_rate warmup_cycle warmup_at_reload decay_inv_sqrt decay decay_strategy "
            "decay_start decay_freq decay_reset_optimizer decay_repeat_warmup"
        )
        return cls(learn_rate=values["learn_rate"], **{name: values[f"lr_{name}"] for name in names.split()})

    def set(self, state: TrainingState) -> None:
        """Set the rate of the next update.

        Raises OptionError if the warm-up of the state began in another unit than that of ``--lr-warmup``.
        """
        factor = np.float32(1)
        if self._warmup.n:
            if state.warmup_start.n and state.warmup_start.unit is not self._warmup.unit:
                raise OptionError(
                    f"--lr-warmup: expected the unit of the warm-up under way, which began at "
                    f"{state.warmup_start}; got {self._warmup}"
                )
            done = state.progress_in(self._warmup.unit) - state.warmup_start.n
            if 0 <= done < self._warmup.n:
                factor = np.float32(done) / np.float32(self._warmup.n)
        rate = self._start_rate + (self._base - self._start_rate) * factor
        state.eta = float(rate * self._root_factor(state) * np.float32(state.eta_factor))

    def after_update(self, state: TrainingState) -> None:
        """What follows from an update that was counted."""
        state.reset = False
        self.set(state)
        if self._decay > 0 and self._strategy == "batches":
            start, freq = self._decay_start[0], self._decay_freq
            if 0 < start <= state.batches and freq > 0 and (state.batches - start) % freq == 0:
                self._apply_decay(state, "after {} batches", state.batches)
        if self._first and self._at_reload:
            self._restart_warmup(state)
        if self._cycle and state.entered_new_period_of(self._warmup):
            state.warmup_start = self._now(state)
        self._first = False

    def after_epoch(self, state: TrainingState) -> None:
        """What follows from the beginning of the epoch ``state.epochs``."""
        self.set(state)
        if self._decay > 0:
            state.reset = False
            if self._strategy.startswith("epoch") and self._decays_in_epoch(state):
                self._apply_decay(state, "in epoch {}", state.epochs)

    def after_stalled(self, state: TrainingState) -> None:
        """What follows from a validation that stalled more than the one before."""
        state.reset = False
        self.set(state)
        if self._decay > 0 and self._strategy == "stalled":
            start = self._decay_start[0]
            if start and state.stalled and state.stalled % start == 0:
                self._apply_decay(state, "after having stalled {} time(s)", state.stalled)

    def _root_factor(self, state: TrainingState) -> np.float32:
        done = state.progress_in(self._root.unit)
        if not self._root.n or done <= self._root_start:
            return np.float32(1)
        return np.float32(math.sqrt(self._root.n / (done - self._root_start + self._root.n)))

    def _decays_in_epoch(self, state: TrainingState) -> bool:
        totals = {"batches": state.batches, "stalled": state.stalled_max}
        conditions = [(self._decay_start[0], state.epochs)]
        if "+" in self._strategy:
            conditions.append((self._decay_start[1], totals[self._strategy.split("+")[1]]))
        return any(0 < start <= total for start, total in conditions)

    def _apply_decay(self, state: TrainingState, occasion: str, number: int) -> None:
        state.eta_factor = float(np.float32(state.eta_factor) * self._decay)
        self.set(state)
        logger.info("Decaying learning rate to %g %s", state.eta, occasion.format(number))
        state.reset = self._reset_optimizer
        if state.reset:
            logger.info("Resetting optimizer statistics")
        if self._repeat_warmup:
            self._restart_warmup(state)

    def _restart_warmup(self, state: TrainingState) -> None:
        logger.info("Restarting learning rate warmup")
        state.warmup_start = self._now(state)

    def _now(self, state: TrainingState) -> Progress:
        return Progress(state.progress_in(self._warmup.unit), self._warmup.unit)


def _inverse_square_root(given: Sequence[str]) -> tuple[Progress, int]:
    """N and S of the inverse square root."""
    if not 1 <= len(given) <= 2:
        raise OptionError(f"--lr-decay-inv-sqrt: expected one or two numbers with units, got {len(given)}")
    scale, *rest = [progress(text, "--lr-decay-inv-sqrt") for text in given]
    start = rest[0] if rest else scale
    if start.n and start.unit is not scale.unit:
        raise OptionError(f"--lr-decay-inv-sqrt: expected two numbers in one unit, got {' '.join(given)}")
    return scale, start.n
