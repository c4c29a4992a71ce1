"""The log-probabilities of given translations, in full batches of few shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph import ArgumentError, Plan, compiled
from nmt.models import Model, Source
from nmt.runtime.compared import compared
from nmt.search.encoding import UNUSED, params_of
from nmt.search.few_batches import FewBatches
from nmt.search.ids import require_ids
from nmt.search.lane_state import spec
from nmt.text.batches import Batch, pad
from nmt.text.parallel import source_names

Streams = Sequence[Sequence[int]]
"""The ids of a sentence in every source stream, then of its translation."""

MINI_BATCH = 64


@compared
class Scored(NamedTuple):
    """A translation under a model; scores are natural logarithms."""

    log_prob: float
    """The sum over the words."""
    word_scores: np.ndarray
    """One score for each target word, float32 ``(words,)``."""
    attention: np.ndarray | None
    """Attention to the words of the first source, float32 ``(words, source words)``; None if not requested or
    if the model has none."""


@dataclass(frozen=True)
class ScoringPlan(Plan, by_key=["model"], code=["layers", "nmt"]):
    """``Model.scorer`` for ``batch`` sentences, each stream padded to ``length``."""

    model: Model
    batch: int
    length: int
    attention: bool
    best: bool

    def __str__(self) -> str:
        return f"scoring: {self.batch} sentences of {self.length} words"

    def inputs(self) -> tuple[Any, ...]:
        size = self.batch, self.length
        stream = Source(spec(*size), spec(*size, kind=np.float32))
        return params_of([self.model])[0], [stream] * self.model.sources, stream

    def __call__(self, params: Any, sources: Sequence[Source], target: Source) -> Any:
        shapes = self.batch, (self.length,) * self.model.sources, self.length
        scorer = self.model.scorer(*shapes, attention=self.attention, best=self.best, derivatives=UNUSED)
        return scorer(params, sources, target)


class Scoring:
    """Scores translations with one model; neither padding nor the other sentences change a score.

    mini_batch: the most sentences in a batch. mini_batch_words: the most words of a stream in a batch,
    padding included; 0: any number. attention, best: whether to return attention and the most probable words.

    Programs are made for few shapes: a new one only if padding to known shapes costs more.
    """

    def __init__(
        self,
        model: Model,
        *,
        mini_batch: int = MINI_BATCH,
        mini_batch_words: int = 0,
        attention: bool = False,
        best: bool = False,
    ) -> None:
        self.model, self.attention, self.best = model, attention and model.attends, best
        self.batches = FewBatches(mini_batch, mini_batch_words, model.dim_vocabs[-1])

    def scores(self, samples: Sequence[Streams]) -> Iterator[tuple[int, Scored]]:
        """The index of each sentence and its score, longest sentences first.

        samples: ids with ``</s>``, at least one in every stream; ArgumentError otherwise.
        """
        for number, scored, _ in self.scores_and_best(samples):
            yield number, scored

    def scores_and_best(self, samples: Sequence[Streams]) -> Iterator[tuple[int, Scored, np.ndarray | None]]:
        """Like ``scores``, with the most probable word at each position given the words before it, int32
        ``(words,)``; None if not requested."""
        check_ids(self.model, samples)
        pending: tuple[list[int], Any] | None = None
        for numbers, shape in self.batches([max(map(len, streams)) for streams in samples]):
            found = numbers, self._dispatched([samples[number] for number in numbers], shape)
            if pending is not None:  # one batch computes while another is read
                yield from self._read(samples, *pending)
            pending = found
        if pending is not None:
            yield from self._read(samples, *pending)

    def _dispatched(self, samples: Sequence[Streams], shape: tuple[int, int]) -> Any:
        rows, length = shape
        batch: Batch = pad(list(zip(*samples, strict=True)), (rows, *[length] * (self.model.sources + 1)))
        *sources, target = map(Source, batch.ids, batch.masks)
        return compiled(ScoringPlan(self.model, rows, length, self.attention, self.best))(
            self.model.params, sources, target
        )

    def _read(
        self, samples: Sequence[Streams], numbers: Iterable[int], found: Any
    ) -> Iterator[tuple[int, Scored, np.ndarray | None]]:
        log_probs, *more = map(np.asarray, found if self.attention or self.best else [found])
        weights = more.pop(0) if self.attention else None
        best = more.pop(0) if self.best else None
        for row, number in enumerate(numbers):
            streams = samples[number]
            words = log_probs[row, : len(streams[-1])]
            aligned = None if weights is None else weights[row, : len(words), : len(streams[0])]
            chosen = None if best is None else best[row, : len(words)]
            yield number, Scored(float(words.sum(dtype=np.float64)), words, aligned), chosen


def score(model: Model, samples: Sequence[Streams], *, attention: bool = False) -> list[Scored]:
    """The log-probabilities of target ids given source ids, for each sentence; natural logarithms.

    samples: ids with ``</s>``, at least one in every stream; ArgumentError otherwise. attention: whether to
    return it, too. Neither padding nor the other sentences change a score.
    """
    found = dict(Scoring(model, attention=attention).scores(samples))
    return [found[number] for number in range(len(samples))]


def check_ids(model: Model, samples: Sequence[Streams]) -> None:
    """``ArgumentError`` unless ``samples`` is a list of samples, each with at least one id in each of the
    model's streams, and all ids are in the vocabularies; also if ``model`` is not a model."""
    if not isinstance(model, Model):
        raise ArgumentError(f"expected a model, as nmt.load_model returns it, got {model!r:.80}")
    names, sizes = [*source_names(model.sources), "target"], model.ids
    if not isinstance(samples, Sized):
        raise ArgumentError(f"expected a list of sentences, got {samples!r:.80}")
    for number, streams in enumerate(samples):
        if not isinstance(streams, Sized):
            each = ", ".join(names)
            raise ArgumentError(f"sentence {number}: expected ids for each of {each}, got {streams!r:.80}")
        if len(streams) != len(names):
            raise ArgumentError(f"sentence {number} has {len(streams)} streams, expected {len(names)}")
        for name, ids, size in zip(names, streams, sizes, strict=True):
            require_ids(number, name, ids, size, ArgumentError)
