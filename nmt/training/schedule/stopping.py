"""When training ends."""

from __future__ import annotations

from nmt.settings.training import TrainOptions
from nmt.training.schedule.display import LogicalEpoch
from nmt.training.schedule.state import TrainingState
from nmt.training.schedule.units import Progress, Unit, progress


class Stopping:
    """The ends of training that options ask for.

    ``--after`` has amounts, separated by commas; the first that is reached ends training. Epochs are reached
    when they are over. ``--after-epochs`` and ``--after-batches`` are the same in the older way, and
    ``--early-stopping`` is the number of validations without a better result; 0 for never.

    Raises OptionError for an amount that cannot be read.
    """

    def __init__(self, options: TrainOptions, epoch: LogicalEpoch) -> None:
        self._epoch, self._early_stopping = epoch, options.early_stopping
        self._ends = [
            Progress(options.after_epochs, Unit.EPOCHS),
            Progress(options.after_batches, Unit.UPDATES),
            *(progress(part, "--after") for part in options.after.split(",")),
        ]

    def reached(self, state: TrainingState, stalled: int) -> bool:
        """Whether training is to end, given how often validation has stalled."""
        if 0 < self._early_stopping <= stalled:
            return True
        return any(end.n and self._over(state, end) for end in self._ends)

    def _over(self, state: TrainingState, end: Progress) -> bool:
        if end.unit is Unit.EPOCHS:
            return self._epoch.of(state) > end.n
        return state.progress_in(end.unit) >= end.n
