"""What an update is made of, and what passes between the learner, the scheduler and the checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph import ArgumentError
from nmt.settings.training import TrainOptions
from nmt.text.batches import Batch
from nmt.training.schedule.state import progress

Tensors = dict[str, Any]
"""Arrays by the name of their parameter."""


class UpdateResult(NamedTuple):
    """What an update says of itself. The arrays may still be being computed: read them late."""

    cost: Any
    """The cost summed over the labels, in nats; float32, shape ()."""
    labels: Any
    """The number of labels that it is a sum over: target words, and with guided alignment its weighted links;
    float32, shape ()."""
    gradient_norm: Any
    """The L2 norm of the gradient before clipping, divided by the target words unless
    ``--normalize-gradient``; float32, shape (). 0 if the update was skipped."""
    sentences: int
    words: int
    """Target words, ``</s>`` included."""
    batches: int
    """How many batches of the corpus were used."""


@dataclass
class LearnerState:
    """All that an update depends on and changes, but for the schedule and the data.

    params: the parameters that are trained, float32 (the masters, with 16-bit compute).
    moments: of the optimizer, by Marian's names: ``adam_mt`` and ``adam_vt``, or ``adagrad_gt``, or nothing.
    steps: updates since the moments were zero.
    average: exponentially smoothed parameters; None without ``--exponential-smoothing``.
    cost_scale: factor of the cost and number of updates since it changed, with ``--cost-scaling``; else None.
    average_words: running average of the words of an update, for ``--normalize-gradient-by-ratio``; 0 if
        there was none yet.
    errors: what rounding took off each parameter, with ``--quantize-bits``; else None.
    """

    params: Tensors
    moments: dict[str, Tensors]
    steps: int = 0
    average: Tensors | None = None
    cost_scale: tuple[float, int] | None = None
    average_words: float = 0.0
    errors: Tensors | None = None


LEAST_WORDS = 256
"""Target words that a batch keeps at least when it alone is shortened for an update."""
ROUNDING = 0.25
"""By what part of itself a number of batches may grow when it is rounded up."""


class Group(NamedTuple):
    """What one update is made of."""

    batches: list[Batch]
    taken: int
    """How many batches of the corpus it took in this epoch."""


class Grouping:
    """Splits batches (``--optimizer-delay``), or gathers them as batches grow (``--mini-batch-warmup``).

    Without growth an update is one batch of the corpus, computed in ``ceil(delay)`` parts whose gradients are
    summed: the update is the same, but needs less memory. With growth an update has as many batches as
    ``multiplier()`` says when the last of them comes; where that is no whole number each is shortened.

    options: ``--mini-batch-warmup`` says whether they grow; ``--optimizer-delay`` counts without growth only.
    With it an update has ``--mini-batch-words`` target words at full growth, 0 for what the batches have, and
    with ``--mini-batch-round-up`` numbers of batches that are multiples of a power of two.

    ArgumentError for a delay that is not above 0.
    """

    def __init__(self, options: TrainOptions, multiplier: Callable[[], float]) -> None:
        if not options.optimizer_delay > 0:
            raise ArgumentError(
                f"--optimizer-delay: expected a number above 0, got {options.optimizer_delay:g}"
            )
        self.delay, self.multiplier = options.optimizer_delay, multiplier
        self.grows = progress(options.mini_batch_warmup, "--mini-batch-warmup").n > 0
        self.reference, self.round_up = options.mini_batch_words, options.mini_batch_round_up
        self.typical_words = float(self.reference)
        """Running average of the target words of the batches that went into updates; part of a checkpoint."""
        self._pending: list[Batch] = []
        self._taken = 0

    def begin_epoch(self) -> None:
        """Batches that are pending stay; from now on those of a new epoch are counted."""
        self._taken = 0

    def add(self, batch: Batch) -> Group | None:
        """The next update, or None if it needs more batches."""
        if not self.grows:
            return Group(batch.split(math.ceil(self.delay)) if self.delay > 1 else [batch], 1)
        self._pending.append(batch)
        self._taken += 1
        ratio, typical = self.multiplier(), self.typical_words
        if self.reference:
            for pending in self._pending:
                typical = _average(typical, pending.words)
            ratio *= self.reference / typical
        if self.round_up:
            ratio = rounded_up(ratio)
        count = len(self._pending)
        if count < ratio:
            return None
        self.typical_words = typical
        batches = [_shortened(pending, ratio / count, alone=count == 1) for pending in self._pending]
        taken, self._pending, self._taken = self._taken, [], 0
        return Group(batches, taken)


def _average(before: float, words: int) -> float:
    return float(np.float32(0.99) * np.float32(before) + np.float32(0.01) * np.float32(words))


def rounded_up(ratio: float) -> float:
    """``ratio`` rounded up to a multiple of the largest power of two that adds at most a quarter."""
    if ratio == 0:
        return ratio
    power = 1
    while power * 2 < ratio:
        power *= 2
    while power:
        proposed = math.ceil(ratio / power) * power
        if (proposed - ratio) / ratio <= ROUNDING:
            return float(proposed)
        power //= 2
    return ratio


def _shortened(batch: Batch, part: float, *, alone: bool) -> Batch:
    least = 1
    if alone:
        least = 1 + (LEAST_WORDS * batch.sentences - 1) // batch.words
    size = max(math.ceil(batch.sentences * part), least)
    return batch.shortened(size)
