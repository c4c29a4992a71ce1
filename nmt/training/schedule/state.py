"""How far training is: counters, averages and the state of validation, as ``.progress.yml`` holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nmt.training.schedule.units import NEVER, Progress, Unit


@dataclass
class TrainingState:
    """Marian's training state; each field is a key of ``.progress.yml``, except where it says so. Costs are
    float32 sums in nats, and all real numbers are float32."""

    eta: float
    """The learning rate of the next update."""
    epochs: int = 1
    """The epoch that is under way, from 1."""
    batches: int = 0
    """Updates since training began."""
    batches_epoch: int = 0
    """Batches that were taken from the corpus in this epoch; an update may need several."""
    samples: int = 0
    """Sentences seen in this epoch."""
    labels_total: int = 0
    """Target words since training began."""
    prev_labels_total: int = 0
    """These three: the same before the last update."""
    prev_batches: int = 0
    prev_epochs: int = 0
    stalled: int = 0
    """How often validation had stalled when it last stalled."""
    stalled_max: int = 0
    """How often that number was higher than ever."""
    validator: str = ""
    """The kind of the first validator."""
    validators: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By kind ``{"last-best": float, "stalled": int}``."""
    reset: bool = False
    """Whether the optimizer was to forget its statistics after the last update."""
    eta_factor: float = 1.0
    """What ``--lr-decay`` has multiplied the learning rate by so far."""
    warmup_start: Progress = NEVER
    """Where the warm-up of the learning rate began."""
    cost_sum: float = 0.0
    """This and the next four: since the last line of the log."""
    cost_count: float = 0.0
    disp_updates: int = 0
    disp_samples: int = 0
    disp_words: int = 0
    loss_avg_slow: float = 0.0
    """Moving averages and variance of the cost per label (``--throw-on-divergence``)."""
    loss_avg_fast: float = 0.0
    loss_var_slow: float = 0.0
    gradient_norm_avg: float = 0.0
    """Moving average and variance of the norm of the gradient, and of its logarithm."""
    gradient_norm_var: float = 0.0
    log_gradient_norm_avg: float = 0.0
    log_gradient_norm_var: float = 0.0
    seed_batch: str = ""
    """The generator of the order of batches as the epoch began: mt19937, as C++ streams write it."""
    seed_corpus: str = ""
    """The generator of the order of sentences as the epoch began, in the same form."""
    extra: dict[str, str] = field(default_factory=dict)
    """Further keys of the file, that Marian does not know and passes over."""
    loaded: bool = False
    """Whether no update was made since the state was read. Not in the file."""
    validated: bool = False
    """Whether the model was validated since the last update. Not in the file."""

    def progress_in(self, unit: Unit) -> int:
        """The total so far in a unit."""
        return {
            Unit.LABELS: self.labels_total,
            Unit.UPDATES: self.batches,
            Unit.EPOCHS: self.epochs,
        }[unit]

    def remember(self) -> None:
        """Keep the totals, so that ``entered_new_period_of`` compares with them after the update to come."""
        self.prev_labels_total, self.prev_batches = self.labels_total, self.batches
        self.prev_epochs = self.epochs

    def entered_new_period_of(self, period: Progress) -> bool:
        """Whether the last update crossed a multiple of ``period``; never if that is 0."""
        previous = {
            Unit.LABELS: self.prev_labels_total,
            Unit.UPDATES: self.prev_batches,
            Unit.EPOCHS: self.prev_epochs,
        }[period.unit]
        return bool(period.n) and self.progress_in(period.unit) // period.n != previous // period.n

    def clear_display(self) -> None:
        """Forget what was summed for the next line of the log."""
        self.cost_sum = self.cost_count = 0.0
        self.disp_updates = self.disp_samples = self.disp_words = 0
