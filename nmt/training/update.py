"""The batches of an update, and the data that learner, scheduler and checkpoints exchange."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph import ArgumentError
from nmt.settings.training import TrainOptions
from nmt.text.batches import Batch
from nmt.text.shapes import batch_bucket
from nmt.training.schedule.state import progress

Tensors = dict[str, Any]
"""Arrays by the name of their parameter."""


class UpdateResult(NamedTuple):
    """The results of an update. The arrays may not be computed yet, so reading them early blocks."""

    cost: Any
    """The cost summed over the labels, in nats; float32, shape ()."""
    labels: Any
    """The number of labels in the sum: target words, plus the weighted links of guided alignment; float32,
    shape ()."""
    gradient_norm: Any
    """The L2 norm of the gradient before clipping, divided by the target words unless
    ``--normalize-gradient``; float32, shape (). 0 if the update was skipped."""
    sentences: int
    words: int
    """Target words, ``</s>`` included."""
    batches: int
    """How many batches the learner was given; for the scheduler ``Group.taken`` replaces it."""


@dataclass
class LearnerState:
    """The state that updates read and change, except for the schedule and the data.

    params: the parameters, float32 (the masters, with 16-bit compute).
    moments: of the optimizer, by Marian's names: ``adam_mt`` and ``adam_vt``, or ``adagrad_gt``, or none; or
        by the names of ``mgraph.Optax``, with arrays of any shape and type.
    steps: updates since the moments were zero, or since Adam's betas last changed.
    denominators: of Adam's two moments, before these updates; see ``mgraph.optimizers.Adam``.
    average: exponentially smoothed parameters; None without ``--exponential-smoothing``.
    cost_scale: the factor and the number of clean updates since it changed; None without ``--cost-scaling``.
    average_words: running average of the words per update, for ``--normalize-gradient-by-ratio``; 0 at first.
    errors: the quantization error of each parameter; None without ``--quantize-bits``.
    """

    params: Tensors
    moments: dict[str, Tensors]
    steps: int = 0
    average: Tensors | None = None
    cost_scale: tuple[float, int] | None = None
    average_words: float = 0.0
    errors: Tensors | None = None
    denominators: tuple[float, float] = (0.0, 0.0)


LEAST_WORDS = 256
"""The fewest target words to which an update of a single batch is shortened."""
ROUNDING = 0.25
"""The largest relative growth when a number of batches is rounded up."""


class Group(NamedTuple):
    """The batches of one update."""

    batches: list[Batch]
    taken: int
    """How many batches of the corpus it took in this epoch, without those left from the epoch before."""


class Grouping:
    """Splits batches (``--optimizer-delay``), or gathers them while batches grow (``--mini-batch-warmup``).

    Without growth an update is one batch of the corpus, computed in ``ceil(delay)`` parts whose gradients are
    summed: the update is the same, but needs less memory. (With ``--multi-loss-type mean`` each part is
    divided by its own words, and with ``scaled`` its alignment cost is multiplied by its own words per link,
    so the result differs from Marian's, whose parts are of neighbouring sentences.)

    With growth an update wants ``delay multiplier()`` batches; the first update of a training wants
    ``multiplier()``. It gathers more until their number is a multiple of the whole ``delay``, and shortens
    each so that together they have the wanted size. At full growth an update has ``--mini-batch-words``
    target words, if not 0, whatever the delay; with ``--mini-batch-round-up`` the wanted number of batches is
    rounded up to a multiple of a power of two. Source: Marian, ``SyncGraphGroup::tryGetSubBatches`` with one
    device.

    begun: whether the training has already made an update.

    ArgumentError if the delay is not above 0.
    """

    def __init__(
        self, options: TrainOptions, multiplier: Callable[[], float], *, begun: bool = False
    ) -> None:
        if not options.optimizer_delay > 0:
            raise ArgumentError(
                f"--optimizer-delay: expected a number above 0, got {options.optimizer_delay:g}"
            )
        self.delay, self.multiplier = options.optimizer_delay, multiplier
        self.grows = progress(options.mini_batch_warmup, "--mini-batch-warmup").n > 0
        self.reference, self.round_up = options.mini_batch_words, options.mini_batch_round_up
        self.typical_words = float(self.reference)
        """Running average of the target words of used batches; part of a checkpoint."""
        self._pending: list[Batch] = []
        self._taken, self._begun = 0, begun

    @property
    def parts(self) -> int:
        """The number of parts in which each batch is computed."""
        return 1 if self.grows else max(1, math.ceil(self.delay))

    def split(self, batch: Batch) -> list[Batch]:
        """The parts in which a batch is computed."""
        return batch.split(self.parts) if self.parts > 1 else [batch]

    def begin_epoch(self) -> None:
        """Start counting the batches of a new epoch; pending batches are kept."""
        self._taken = 0

    def add(self, batch: Batch) -> Group | None:
        """The next update, or None if it needs more batches."""
        if not self.grows:
            return Group(self.split(batch), 1)
        self._pending.append(batch)
        self._taken += 1
        delay = self.delay if self._begun else 1.0
        ratio, typical = self.multiplier(), self.typical_words
        if self.reference:
            for pending in self._pending:
                typical = _average(typical, pending.words)
            ratio *= self.reference / typical
        else:
            ratio *= delay
        if self.round_up:
            ratio = rounded_up(ratio)
        count = len(self._pending)
        if count < ratio or count % max(1, int(delay)):
            return None
        self.typical_words = typical
        batches = [_shortened(pending, ratio / count, alone=count == 1) for pending in self._pending]
        taken, self._pending, self._taken, self._begun = self._taken, [], 0, True
        return Group(batches, taken)


def _average(before: float, words: int) -> float:
    return float(np.float32(0.99) * np.float32(before) + np.float32(0.01) * np.float32(words))


def rounded_up(ratio: float) -> float:
    """``ratio`` rounded up to a multiple of the largest power of two that adds at most a quarter; or
    ``ratio`` itself, if even the next whole number adds more."""
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
    least = math.ceil(LEAST_WORDS * batch.sentences / batch.words) if alone else 1
    size = max(math.ceil(batch.sentences * part), least)
    short = batch.shortened(size)
    # Nearly every update of a warm-up has its own size; few numbers of rows need few programs.
    return short.with_rows(min(batch_bucket(short.sentences), len(batch.ids[0])))
