"""Batches of sentences: Marian's mini-batches and maxi-batches, and the shapes they are padded to.

A program is compiled for each padded shape, so shapes are few: lengths are rounded up to
``length_bucket``, numbers of sentences to ``batch_bucket``. What a sentence becomes must not depend
on the padding, nor on the other sentences of its batch.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from nmt.settings import OptionError
from nmt.text.sentences import Links, Sample, Sentence
from nmt.text.shapes import Shape, Sizes, batch_bucket, length_bucket

BATCH_OPTIONS = ("mini_batch", "mini_batch_words", "maxi_batch", "maxi_batch_sort")
"""The options that ``batches`` and ``maxi_batches`` take."""


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Word ids of several sequences as one array.

    ids: int32 ``[rows, length]``; positions after the end of a sequence hold 0.
    mask: float32 ``[rows, length]``; 1 at a word, 0 at padding.
    size: the number of real sequences; rows from ``size`` on repeat the first, so that they are
        finished when it is, and their results are dropped.
    """

    ids: np.ndarray
    mask: np.ndarray
    size: int


def pad(sequences: Sequence[Sequence[int]], *, largest: int | None = None) -> PaddedBatch:
    """``sequences`` of word ids padded to ``length_bucket`` and ``batch_bucket``.

    sequences: at least one, each with at least one id (the final ``</s>``).
    largest: the size of a full batch, see ``batch_bucket``.
    """
    rows = batch_bucket(len(sequences), largest)
    length = length_bucket(max(map(len, sequences)))
    ids = np.zeros((rows, length), np.int32)
    mask = np.zeros((rows, length), np.float32)
    for row in range(rows):
        sequence = sequences[row if row < len(sequences) else 0]
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    return PaddedBatch(ids, mask, len(sequences))


def batches(samples: Iterable[Sample], **options: Any) -> Iterator[list[Sample]]:
    """The batches of ``maxi_batches``, one after another."""
    for found in maxi_batches(samples, **options):
        yield from found


def maxi_batches(
    samples: Iterable[Sample],
    *,
    mini_batch: int,
    maxi_batch: int = 1,
    maxi_batch_sort: str = "none",
    mini_batch_words: int = 0,
) -> Iterator[list[list[Sample]]]:
    """Cut a stream of samples into lists of batches, reading no further ahead than it must.

    ``mini_batch * maxi_batch`` samples are read, sorted, and cut into batches of ``mini_batch``
    (or, if ``mini_batch_words`` is not 0, of just more than so many words of the first stream).
    ``maxi_batch_sort`` is ``src``, ``trg`` (longest first, so that what does not fit into memory
    fails at once) or ``none``. A sample with a problem is passed on at once, alone.
    """
    capacity = mini_batch * maxi_batch
    buffer: list[Sample] = []
    for sample in samples:
        if sample.problem:
            yield [[sample]]
            continue
        buffer.append(sample)
        if len(buffer) == capacity:
            yield list(_cut(_sorted(buffer, maxi_batch_sort), mini_batch, mini_batch_words))
            buffer.clear()
    if buffer:
        yield list(_cut(_sorted(buffer, maxi_batch_sort), mini_batch, mini_batch_words))


def _sorted(samples: list[Sample], order: str) -> list[Sample]:
    if order == "none":
        return list(samples)
    step = 1 if order == "src" else -1

    def lengths(sample: Sample) -> list[int]:
        return [len(sequence) for sequence in sample.sequences[::step]]

    return sorted(samples, key=lengths, reverse=True)


def _cut(samples: list[Sample], size: int, words: int) -> Iterator[list[Sample]]:
    if not words:
        stream = iter(samples)
        while batch := list(islice(stream, min(size, len(samples)))):
            yield batch
        return
    batch, count = [], 0
    for sample in samples:
        batch.append(sample)
        count += len(sample.sequences[0])
        if count > words:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Sentences of all streams, padded to a shape for which a program may be there.

    ids, masks: of each source stream, then of the target: int32 and float32 ``[rows, length]``. Padding is 0
        in both. Rows from ``sentences`` on are padding: in the sources they repeat row 0, so that nothing in
        them is infinite; in the target they do so too, but their mask is 0, and it is the target's mask that
        counts.
    sentences: how many rows are real.
    weights: float32 ``[rows, target length]``, the weight of each target word (``--data-weighting``); None
        for 1.
    alignment: float32 ``[rows, target length, source length]``, the attention that is asked for
        (``--guided-alignment``); None if none is.
    """

    ids: tuple[np.ndarray, ...]
    masks: tuple[np.ndarray, ...]
    sentences: int
    weights: np.ndarray | None = None
    alignment: np.ndarray | None = None

    @property
    def words(self) -> int:
        """The number of target words, ``</s>`` included; Marian's ``wordsTrg``."""
        return int(self.masks[-1].sum())

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, then the padded length of each stream; what a program is compiled for."""
        return (len(self.ids[0]), *(ids.shape[1] for ids in self.ids))

    def split(self, parts: int) -> list[TrainingBatch]:
        """At most so many parts of nearly equal size, in order; as many rows in each, whatever batch of this
        shape is split, so that they run through one program."""
        rows = -(-len(self.ids[0]) // parts)
        return [self._part(at, min(rows, self.sentences - at), rows) for at in range(0, self.sentences, rows)]

    def shortened(self, sentences: int) -> TrainingBatch:
        """The first so many sentences; all of them, if there are no more."""
        return self if sentences >= self.sentences else self._part(0, sentences, sentences)

    def with_rows(self, rows: int) -> TrainingBatch:
        """The same sentences in so many rows, of which those that are too many are padding."""
        return self if rows == len(self.ids[0]) else self._part(0, self.sentences, rows)

    def _part(self, start: int, sentences: int, rows: int) -> TrainingBatch:
        chosen = np.full(rows, start)
        chosen[:sentences] = np.arange(start, start + sentences)
        real = (np.arange(rows) < sentences).astype(np.float32)[:, None]
        masks = [mask[chosen] for mask in self.masks]
        masks[-1] *= real
        return TrainingBatch(
            tuple(ids[chosen] for ids in self.ids),
            tuple(masks),
            sentences,
            None if self.weights is None else self.weights[chosen],
            None if self.alignment is None else self.alignment[chosen],
        )


def padded(sentences: Sequence[Sentence], shape: Shape) -> TrainingBatch:
    """The batch of ``sentences``, padded to ``shape``: rows, then the length of each stream."""
    rows, *lengths = shape
    real = len(sentences)
    ids, masks = [], []
    for stream, length in enumerate(lengths):
        words = [sentence.streams[stream] for sentence in sentences]
        table = np.zeros((rows, length), np.int32)
        mask = np.zeros((rows, length), np.float32)
        inside = np.arange(length) < np.fromiter(map(len, words), np.int64, real)[:, None]
        table[:real][inside] = np.concatenate(words)
        mask[:real][inside] = 1
        table[real:], mask[real:] = table[0], mask[0]
        ids.append(table)
        masks.append(mask)
    masks[-1][real:] = 0
    return TrainingBatch(
        tuple(ids),
        tuple(masks),
        real,
        _weights(sentences, rows, lengths[-1]),
        _alignment(sentences, rows, lengths),
    )


def _weights(sentences: Sequence[Sentence], rows: int, length: int) -> np.ndarray | None:
    """The weights of target words, 1 where there is no word."""
    if sentences[0].weights is None:
        return None
    table = np.ones((rows, length), np.float32)
    for row, sentence in enumerate(sentences):
        weights = sentence.weights or []
        table[row, : len(weights)] = weights
    return table


def _alignment(sentences: Sequence[Sentence], rows: int, lengths: Sequence[int]) -> np.ndarray | None:
    """For each target word equal shares for the source words that it is linked to; they sum to 1, or 0."""
    if sentences[0].alignment is None:
        return None
    table = np.zeros((rows, lengths[-1], lengths[0]), np.float32)
    for row, sentence in enumerate(sentences):
        _add_links(table[row], sentence.alignment or [])
    return table


def _add_links(table: np.ndarray, links: Links) -> None:
    if links:
        source, target = np.array(links).T
        shares = np.float32(1) / np.maximum(np.bincount(target), 1).astype(np.float32)
        np.add.at(table, (target, source), shares[target])


SORTS = ("trg", "src", "none")


class _Queued(int):
    """A place in the order of a maxi-batch, and the sentence that has it; equal places are equal."""

    sentence: Sentence


@dataclass(frozen=True)
class Batching:
    """How sentences become batches.

    mini_batch: sentences in a batch. mini_batch_words: if not 0, a batch is full as soon as its first source
        has more words than this, instead. sizes: if there, a batch is full when no more would fit, instead.
    maxi_batch: mini-batches' worth of sentences that are read ahead.
    maxi_batch_sort: in which order they are taken: ``trg`` and ``src`` by the lengths of the target or of the
        first source, then of the other streams, longest first; ``none`` from the last line to the first.

    Sentences that are equally long come in the order in which Marian's priority queue gives them, so that
    the batches are Marian's. The last batch of a maxi-batch may be smaller than the others.
    """

    mini_batch: int = 64
    mini_batch_words: int = 0
    maxi_batch: int = 100
    maxi_batch_sort: str = "trg"
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        for option in ("mini_batch", "maxi_batch"):
            if getattr(self, option) < 1:
                raise OptionError(f"--{option.replace('_', '-')} is at least 1, got {getattr(self, option)}")
        if self.mini_batch_words < 0:
            raise OptionError(f"--mini-batch-words is at least 0, got {self.mini_batch_words}")
        if self.maxi_batch_sort not in SORTS:
            raise OptionError(f"--maxi-batch-sort is one of {', '.join(SORTS)}, got '{self.maxi_batch_sort}'")

    @classmethod
    def from_options(cls, values: Mapping[str, Any], sizes: Sizes | None = None) -> Batching:
        """Batches as Marian's options say."""
        return cls(
            values["mini_batch"],
            values["mini_batch_words"],
            values["maxi_batch"],
            values["maxi_batch_sort"],
            sizes,
        )

    @property
    def capacity(self) -> int:
        """Sentences that are read ahead."""
        return self.mini_batch * self.maxi_batch

    def cut(self, sentences: Sequence[Sentence]) -> list[list[Sentence]]:
        """The batches of a maxi-batch."""
        # With the same comparisons heapq keeps its heap as the C++ library does: a priority queue of C++ has
        # the largest on top, heapq the smallest of the negated.
        queue: list[_Queued] = []
        for sentence in sentences:
            queued = _Queued(-self._rank(sentence))
            queued.sentence = sentence
            heapq.heappush(queue, queued)
        batches: list[list[Sentence]] = []
        while queue:
            batches.append(self._next(queue))
        return batches

    def _rank(self, sentence: Sentence) -> int:
        if self.maxi_batch_sort == "none":
            return sentence.number
        rank = 0
        for words in sentence.streams[:: 1 if self.maxi_batch_sort == "src" else -1]:
            rank = rank << 32 | len(words)
        return rank

    def _next(self, queue: list[_Queued]) -> list[Sentence]:
        """The next batch, taken from the queue."""
        if self.sizes is not None:
            return self._fitting(queue, self.sizes)
        batch: list[Sentence] = []
        words = 0
        while queue:
            sentence = heapq.heappop(queue).sentence
            batch.append(sentence)
            if not self.mini_batch_words:
                if len(batch) == self.mini_batch:
                    break
                continue
            words += len(sentence.streams[0])
            if words > self.mini_batch_words:
                break
        return batch

    def _fitting(self, queue: list[_Queued], sizes: Sizes) -> list[Sentence]:
        """As many sentences as fit; one that makes the batch too long for itself waits for the next."""
        batch: list[Sentence] = []
        lengths: tuple[int, ...] = ()
        while queue:
            queued = heapq.heappop(queue)
            streams = tuple(map(len, queued.sentence.streams))
            lengths = tuple(map(max, lengths, streams)) if lengths else streams
            most = max(1, sizes(lengths))
            if len(batch) + 1 > most:
                heapq.heappush(queue, queued)
                break
            batch.append(queued.sentence)
            if len(batch) == most:
                break
        return batch
