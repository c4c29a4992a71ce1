"""The log-probabilities of given translations, in full batches of few shapes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph import Plan, compiled
from mgraph.device import platform_of
from nmt.models import Model, Source
from nmt.search.encoding import UNUSED, params_of
from nmt.search.lane_state import spec
from nmt.text.batches import Batch, pad
from nmt.text.shapes import few_lengths, length_bucket

Streams = Sequence[Sequence[int]]
"""The ids of a sentence in every source stream, then of its translation."""

MINI_BATCH = 64
FEW_ROWS = 8
MOST_LENGTHS = 3
MOST_LOGITS = 1 << 27
"""How many logits, at 4 bytes each, are computed at once."""
POSITIONS = {"cpu": 2048}
"""How many positions a batch has, by platform: on a CPU more are not more efficient, and the last batch has
more padding."""
PROGRAM = 25_000
"""About how many positions are scored instead of compiling a program."""


class Scored(NamedTuple):
    """A translation under a model; scores are natural logarithms."""

    log_prob: float
    """The sum over the words."""
    word_scores: np.ndarray
    """Of each target word, float32 ``(words,)``."""
    attention: np.ndarray | None
    """To the words of the first source, float32 ``(words, source words)``; None if not requested or if the
    model has none."""


@dataclass(frozen=True)
class ScoringPlan(Plan, by_key=["model"], code=["layers", "nmt"]):
    """``Model.scorer`` for so many sentences, each stream padded to ``length``."""

    model: Model
    batch: int
    length: int
    attention: bool

    def __str__(self) -> str:
        return f"scoring: {self.batch} sentences of {self.length} words"

    def inputs(self) -> tuple[Any, ...]:
        size = self.batch, self.length
        stream = Source(spec(*size), spec(*size, kind=np.float32))
        return params_of([self.model])[0], [stream] * self.model.sources, stream

    def __call__(self, params: Any, sources: Sequence[Source], target: Source) -> Any:
        shapes = self.batch, (self.length,) * self.model.sources, self.length
        scorer = self.model.scorer(*shapes, attention=self.attention, derivatives=UNUSED)
        return scorer(params, sources, target)


class Scoring:
    """Scores translations with one model; neither padding nor the other sentences change a score.

    mini_batch: the most sentences in a batch. mini_batch_words: the most words of a stream in a batch,
    padding included; 0: any number. attention: whether to return it.

    Programs are made for few shapes, and only if padding to those that are known costs more.
    """

    def __init__(
        self,
        model: Model,
        *,
        mini_batch: int = MINI_BATCH,
        mini_batch_words: int = 0,
        attention: bool = False,
    ) -> None:
        self.model, self.attention = model, attention and model.attends
        self._mini_batch, self._words = mini_batch, mini_batch_words
        self._lock = threading.Lock()
        self._seen: Counter[int] = Counter()
        self._shapes: set[tuple[int, int]] = set()
        self._wasted: Counter[tuple[int, int]] = Counter()

    def scores(self, samples: Sequence[Streams]) -> Iterator[tuple[int, Scored]]:
        """The index of each sentence and its score, the longest first.

        samples: ids with ``</s>``, at least one in every stream; ValueError otherwise.
        """
        for number, streams in enumerate(samples):
            if len(streams) != self.model.sources + 1:
                raise ValueError(
                    f"sentence {number} has {len(streams)} streams, expected {self.model.sources + 1}"
                )
            if not all(map(len, streams)):
                raise ValueError(f"sentence {number} has no ids in one stream, not even </s>")
        pending: tuple[list[int], Any] | None = None
        for numbers, shape in self.batches([max(map(len, streams)) for streams in samples]):
            found = numbers, self._dispatched([samples[number] for number in numbers], shape)
            if pending is not None:  # one batch computes while another is read
                yield from self._read(samples, *pending)
            pending = found
        if pending is not None:
            yield from self._read(samples, *pending)

    def batches(self, lengths: Sequence[int]) -> Iterator[tuple[list[int], tuple[int, int]]]:
        """The batches for sentences whose longest streams have these lengths: indices of sentences, then rows
        and padded length. It is remembered which shapes have programs."""
        padded = self._padded(lengths)
        order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
        for length in sorted(set(padded), reverse=True):
            own, most = [number for number in order if padded[number] == length], self._most(length)
            for first in range(0, len(own), most):
                numbers = own[first : first + most]
                yield numbers, (self._rows(len(numbers), most, length), length)

    def _padded(self, lengths: Sequence[int]) -> list[int]:
        """The length to which each sentence is padded."""
        if not lengths:
            return []
        with self._lock:
            self._seen.update(lengths)
            ladder = set(map(length_bucket, self._seen))
            known = {length for _, length in self._shapes}
            chosen = few_lengths(
                self._seen, ladder, _positions, price=PROGRAM, most=MOST_LENGTHS, known=known
            )
        return [min(each for each in chosen if each >= length) for length in lengths]

    def _most(self, length: int) -> int:
        """The rows of a full batch: a power of two, so that a program serves all batches of a length."""
        positions = [self._words, POSITIONS.get(platform_of(None), 0)]
        positions.append(MOST_LOGITS // self.model.dim_vocabs[-1])
        most = min(self._mini_batch, *(each // length for each in positions if each))
        return 1 << max(1, most).bit_length() - 1

    def _rows(self, sentences: int, most: int, length: int) -> int:
        """The rows for so many sentences: those of a known program, until padding has cost another."""
        rows = next((rows for rows in (1, FEW_ROWS) if sentences <= rows < most), most)
        with self._lock:
            known = [each for each, own in self._shapes if own == length and each >= rows]
            nearest = min(known, default=rows)
            self._wasted[rows, length] += (nearest - rows) * length
            if self._wasted[rows, length] <= PROGRAM:
                rows = nearest
            self._shapes.add((rows, length))
        return rows

    def _dispatched(self, samples: Sequence[Streams], shape: tuple[int, int]) -> Any:
        rows, length = shape
        batch: Batch = pad(list(zip(*samples, strict=True)), (rows, *[length] * (self.model.sources + 1)))
        *sources, target = map(Source, batch.ids, batch.masks)
        return compiled(ScoringPlan(self.model, rows, length, self.attention))(
            self.model.params, sources, target
        )

    def _read(
        self, samples: Sequence[Streams], numbers: Iterable[int], found: Any
    ) -> Iterator[tuple[int, Scored]]:
        log_probs, weights = map(np.asarray, found) if self.attention else (np.asarray(found), None)
        for row, number in enumerate(numbers):
            streams = samples[number]
            words = log_probs[row, : len(streams[-1])]
            aligned = None if weights is None else weights[row, : len(words), : len(streams[0])]
            yield number, Scored(float(words.sum(dtype=np.float64)), words, aligned)


def score(model: Model, samples: Sequence[Streams], *, attention: bool = False) -> list[Scored]:
    """The log-probabilities of target ids given source ids, for each sentence; natural logarithms.

    samples: ids with ``</s>``, at least one in every stream. attention: whether to return it, too.
    Neither padding nor the other sentences change a score.
    """
    found = dict(Scoring(model, attention=attention).scores(samples))
    return [found[number] for number in range(len(samples))]


def _positions(length: int, padded: int) -> float:
    return padded
