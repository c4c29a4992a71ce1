"""The progress lines of the log, and when training ends."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from nmt.settings.option import OptionError
from nmt.settings.training import Course, TrainOptions
from nmt.training.schedule.state import Progress, TrainingState, Unit, progress


class DisplayRecord(NamedTuple):
    """The figures of a log line. Sums are over the updates since the previous line."""

    epoch: float
    """The logical epoch."""
    update: int
    """Updates since training began."""
    sentences: int
    """Sentences in this epoch."""
    cost: float
    """As ``--cost-type`` defines it."""
    labels: float
    """Labels that the cost sums over."""
    batch_labels: int
    """Target words of the last update."""
    total_labels: int
    """Target words since training began."""
    seconds: float
    """Since the previous line."""
    words_per_second: float
    gradient_norm: float
    """The moving average of the norm."""
    learn_rate: float
    """Of the next update."""

    @property
    def figures(self) -> dict[str, float]:
        """All figures by name, except the number of the update."""
        figures = self._asdict()
        del figures["update"]
        return figures


class LogicalEpoch:
    """The epoch as users count it: a number of updates, target words, or passes through the data.

    Source: ``--logical-epoch``; the second value is the number of decimals, at most 99. Without it there are
    3, or none if an epoch is one pass. OptionError for other values.
    """

    def __init__(self, words: tuple[str, ...] = Course.logical_epoch) -> None:
        option = "--logical-epoch"
        if not 1 <= len(words) <= 2:
            raise OptionError(
                f"{option}: expected an amount and the number of decimals, got {len(words)} values"
            )
        self._amount = progress(words[0], option)
        if not self._amount.n:
            raise OptionError(f"{option}: expected an amount above 0, got '{words[0]}'")
        if len(words) > 1 and not re.fullmatch("[0-9]{1,2}", words[1]):
            raise OptionError(f"{option}: expected the number of decimals, at most 99, got '{words[1]}'")
        passes = self._amount.n == 1 and self._amount.unit is Unit.EPOCHS
        self._decimals = int(words[1]) if len(words) > 1 else (0 if passes else 3)

    def of(self, state: TrainingState) -> float:
        """The logical epoch, a float32."""
        return float(np.float32(state.progress_in(self._amount.unit)) / np.float32(self._amount.n))

    def text(self, state: TrainingState) -> str:
        """The logical epoch as the log shows it."""
        return f"{self.of(state):.{self._decimals}f}"


class Display:
    """The line that is logged every ``--disp-freq``, as in Marian.

    ``--cost-type`` selects the cost: ``ce-mean-words`` per label, ``ce-mean`` (old name ``cross-entropy``)
    per sentence, ``perplexity`` exp of the cost per label, ``ce-sum`` with ``--disp-label-counts`` per label,
    followed by the label counts, else per update. ``--lr-report`` adds the rate of the next update.
    epoch: how epochs are counted.
    """

    def __init__(self, options: TrainOptions, epoch: LogicalEpoch) -> None:
        self._cost_type, self._label_counts = options.cost_type, options.disp_label_counts
        self._learn_rate, self._epoch = options.lr_report, epoch

    def record(self, state: TrainingState, batch_labels: int, seconds: float) -> DisplayRecord:
        """The figures of a settled state."""
        return DisplayRecord(
            epoch=self._epoch.of(state),
            update=state.batches,
            sentences=state.samples,
            cost=self._cost(state),
            labels=state.cost_count,
            batch_labels=batch_labels,
            total_labels=state.labels_total,
            seconds=seconds,
            words_per_second=state.disp_words / seconds if seconds > 0 else math.inf,
            gradient_norm=state.gradient_norm_avg,
            learn_rate=state.eta,
        )

    def line(self, state: TrainingState, record: DisplayRecord) -> str:
        """The log line for the figures of ``record``."""
        cost = f"Cost {record.cost:.8f}"
        if self._cost_type == "ce-sum" and self._label_counts:
            labels = f"{int(record.labels):,}" if math.isfinite(record.labels) else f"{record.labels}"
            counts = f"{labels} @ {record.batch_labels:,}" if record.batch_labels else labels
            cost += f" * {counts} after {record.total_labels:,}"
        parts = [
            f"Ep. {self._epoch.text(state)}",
            f"Up. {record.update}",
            f"Sen. {record.sentences:,}",
            cost,
            f"Time {record.seconds:.2f}s",
            f"{record.words_per_second:.2f} words/s",
            f"gNorm {record.gradient_norm:.4f}",
        ]
        if self._learn_rate:
            parts.append(f"L.r. {record.learn_rate:.4e}")
        return " : ".join(parts)

    def _cost(self, state: TrainingState) -> float:
        number: float = state.cost_count
        if self._cost_type == "ce-sum" and not self._label_counts:
            number = state.disp_updates
        elif self._cost_type in ("ce-mean", "cross-entropy"):
            number = state.disp_samples
        with np.errstate(all="ignore"):
            cost = np.float32(state.cost_sum) / np.float32(number)
            if self._cost_type == "perplexity":
                cost = np.float32(np.exp(np.float64(cost)))
        return float(cost)


class Stopping:
    """The stopping criteria of the options.

    ``--after`` lists amounts, separated by commas; training ends at the first one reached. An epoch is
    reached when it is over. ``--after-epochs`` and ``--after-batches`` are the older form, and
    ``--early-stopping`` is the number of validations without improvement; 0 for never.

    Raises OptionError for an invalid amount.
    """

    def __init__(self, options: TrainOptions, epoch: LogicalEpoch) -> None:
        self._epoch, self._early_stopping = epoch, options.early_stopping
        self._ends = [
            Progress(options.after_epochs, Unit.EPOCHS),
            Progress(options.after_batches, Unit.UPDATES),
            *(progress(part, "--after") for part in options.after.split(",")),
        ]

    def reached(self, state: TrainingState, stalled: int) -> bool:
        """Whether training must end, given how often validation has stalled."""
        if 0 < self._early_stopping <= stalled:
            return True
        return any(end.n and self._over(state, end) for end in self._ends)

    def _over(self, state: TrainingState, end: Progress) -> bool:
        if end.unit is Unit.EPOCHS:
            return self._epoch.of(state) > end.n
        return state.progress_in(end.unit) >= end.n
