"""When training ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmt.training.schedule.display import LogicalEpoch
from nmt.training.schedule.state import TrainingState
from nmt.training.schedule.units import Progress, Unit, progress


class Stopping:
    """The ends of training that options ask for.

    Parameters:
        epoch: how epochs are counted.
        after: amounts, separated by commas; the first that is reached ends training (``--after``). Epochs are
            reached when they are over.
        after_epochs, after_batches: the same in the older way; 0 for never.
        early_stopping: the number of validations without a better result; 0 for never.

    Raises OptionError for an amount that cannot be read.
    """

    def __init__(
        self,
        *,
        epoch: LogicalEpoch,
        after: str = "0e",
        after_epochs: int = 0,
        after_batches: int = 0,
        early_stopping: int = 0,
    ) -> None:
        self._epoch, self._early_stopping = epoch, early_stopping
        self._ends = [
            Progress(after_epochs, Unit.EPOCHS),
            Progress(after_batches, Unit.UPDATES),
            *(progress(part, "--after") for part in after.split(",")),
        ]

    @classmethod
    def from_options(cls, values: Mapping[str, Any], epoch: LogicalEpoch) -> Stopping:
        """By ``after``, ``after-epochs``, ``after-batches`` and ``early-stopping``."""
        names = ("after", "after_epochs", "after_batches", "early_stopping")
        return cls(epoch=epoch, **{name: values[name] for name in names})

    def reached(self, state: TrainingState, stalled: int) -> bool:
        """Whether training is to end, given how often validation has stalled."""
        if 0 < self._early_stopping <= stalled:
            return True
        return any(end.n and self._over(state, end) for end in self._ends)

    def _over(self, state: TrainingState, end: Progress) -> bool:
        if end.unit is Unit.EPOCHS:
            return self._epoch.of(state) > end.n
        return state.progress_in(end.unit) >= end.n
