"""The training state, as ``.progress.yml`` stores it, and amounts of training, such as ``10Ku``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from nmt.settings.option import OptionError

_AMOUNT = re.compile(r"\+?([0-9.,]+(?:[eE][+-]?[0-9]+)?)([kKMGT]?)([tue]?)")
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_EXPECTED = (
    "expected a whole number, optionally with K, M, G or T, then optionally u (updates), t (target words) or "
    "e (epochs)"
)


class Unit(Enum):
    """A unit of training progress."""

    UPDATES = "u"
    LABELS = "t"
    EPOCHS = "e"


class Progress(NamedTuple):
    """A number of updates, target labels or epochs; ``str`` gives Marian's form: ``10000u``."""

    n: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.n}{self.unit.value}"


NEVER = Progress(0, Unit.UPDATES)
"""Means "never"."""


def progress(text: str, option: str) -> Progress:
    """Parse an amount: ``10Ku`` updates, ``20Gt`` labels, ``3e`` epochs, ``1000`` updates.

    Parameters:
        text: a number, optionally with commas and an exponent; then optionally a factor ``K`` (or ``k``
            before a unit), ``M``, ``G`` or ``T``; then optionally a unit, by default updates. The product of
            number and factor must be whole.
        option: the name of the option, for the OptionError.

    Source: Marian's values "with units", such as ``--after`` and ``--lr-warmup``.
    """
    try:
        match = _AMOUNT.fullmatch(text.strip())
        if match is None or text.strip().endswith("k"):
            raise ValueError
        digits, factor, unit = match.groups()
        number = _FACTORS[factor] * float(digits.replace(",", ""))
        if number >= 2**63 or number != int(number):
            raise ValueError
    except ValueError:
        raise OptionError(f"{option}: {_EXPECTED}; got '{text}'") from None
    return Progress(int(number), Unit(unit or "u"))


def period(text: str, option: str) -> Progress:
    """Parse a frequency, as ``progress``; OptionError for epochs, which Marian does not support here."""
    amount = progress(text, option)
    if amount.unit is Unit.EPOCHS:
        raise OptionError(f"{option}: expected updates (u) or target words (t), got epochs: '{text}'")
    return amount


_TOTALS = {Unit.LABELS: "labels_total", Unit.UPDATES: "batches", Unit.EPOCHS: "epochs"}
"""The field of ``TrainingState`` that counts each unit; with the prefix ``prev_``: the count before the last
update."""


@dataclass
class TrainingState:
    """Marian's training state; each field is a key of ``.progress.yml`` unless noted. Costs are sums in nats;
    all real numbers are float32."""

    eta: float
    """The learning rate of the next update."""
    epochs: int = 1
    """The current epoch, from 1."""
    batches: int = 0
    """Updates since training began."""
    batches_epoch: int = 0
    """Batches taken from the corpus in this epoch; an update may need several."""
    samples: int = 0
    """Sentences seen in this epoch."""
    labels_total: int = 0
    """Target words since training began."""
    prev_labels_total: int = 0
    """This field and the next two: the totals before the last update."""
    prev_batches: int = 0
    prev_epochs: int = 0
    stalled: int = 0
    """The number of stalled validations when validation last stalled."""
    stalled_max: int = 0
    """How often the number of stalled validations reached a new maximum."""
    validator: str = ""
    """The kind of the first validator."""
    validators: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By kind ``{"last-best": float, "stalled": int}``."""
    reset: bool = False
    """Whether the optimizer had to be reset after the last update."""
    eta_factor: float = 1.0
    """The product of all decays of the learning rate so far (``--lr-decay``)."""
    warmup_start: Progress = NEVER
    """The progress at which the warm-up of the learning rate began."""
    cost_sum: float = 0.0
    """This field and the next four: sums since the last log line."""
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
    """The generator of the batch order at the start of the epoch: mt19937, as C++ streams write it."""
    seed_corpus: str = ""
    """The generator of the sentence order at the start of the epoch, in the same form."""
    extra: dict[str, str] = field(default_factory=dict)
    """Other keys of the file, which Marian ignores."""
    loaded: bool = False
    """Whether the state was read, and since then no update has been made and no epoch has ended. Not in the
    file."""
    validated: bool = False
    """Whether the model has been validated since the last update. Not in the file."""

    def progress_in(self, unit: Unit) -> int:
        """The total so far in a unit."""
        return int(getattr(self, _TOTALS[unit]))

    def remember(self) -> None:
        """Store the totals for ``entered_new_period_of`` after the next update."""
        for total in _TOTALS.values():
            setattr(self, f"prev_{total}", getattr(self, total))

    def entered_new_period_of(self, period: Progress) -> bool:
        """Whether the last update crossed a multiple of ``period``; never if that is 0."""
        previous = getattr(self, f"prev_{_TOTALS[period.unit]}")
        return bool(period.n) and self.progress_in(period.unit) // period.n != previous // period.n

    def clear_display(self) -> None:
        """Reset the sums for the next log line."""
        self.cost_sum = self.cost_count = 0.0
        self.disp_updates = self.disp_samples = self.disp_words = 0
