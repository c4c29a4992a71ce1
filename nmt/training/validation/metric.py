"""What every validation metric is, and when a value of it is an improvement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from nmt.training.schedule.state import TrainingState
from nmt.training.validation.evaluation import Evaluation

WORST = float(np.finfo(np.float32).max)


class Record(NamedTuple):
    """What is known of a metric, as ``.progress.yml`` keeps it; values are float32."""

    best: float
    """The best value so far."""
    stalled: int = 0
    """Validations since it last became better, and by enough."""

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Record:
        """From an entry of ``TrainingState.validators``."""
        return cls(float(np.float32(entry["last-best"])), int(entry["stalled"]))

    @property
    def entry(self) -> dict[str, Any]:
        """An entry of ``TrainingState.validators``."""
        return {"last-best": self.best, "stalled": self.stalled}


class Metric(ABC):
    """A number that says how good a model is.

    kind: its name for ``--valid-metrics``. epsilon: an improvement by less does not count for early stopping,
    although the value is the new best (``--early-stopping-epsilon``); with 0 any counts.
    """

    lower_is_better = False

    def __init__(self, kind: str, epsilon: float = 0.0) -> None:
        self.kind, self.epsilon = kind, np.float32(epsilon)

    @abstractmethod
    def measure(self, evaluation: Evaluation, state: TrainingState) -> float | None:
        """The value; None if there is none to have, which is neither better nor worse than any."""

    @property
    def start(self) -> Record:
        """The record before the first value: anything is better."""
        return Record(WORST if self.lower_is_better else -WORST)

    def improves(self, record: Record, value: float) -> bool:
        """Whether ``value`` is better than the best so far, by however little."""
        return value < record.best if self.lower_is_better else value > record.best

    def next_record(self, record: Record, value: float) -> Record:
        """The record after ``value``; all in float32, as in Marian. What is no number is no improvement."""
        if not self.improves(record, value):
            return Record(record.best, record.stalled + 1)
        with np.errstate(over="ignore"):
            gain = np.abs(np.float32(record.best) - np.float32(value))
        too_little = self.epsilon != 0 and gain < self.epsilon
        return Record(value, record.stalled + 1 if too_little else 0)
