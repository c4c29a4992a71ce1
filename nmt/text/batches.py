"""Batches of sentences: padding, and how sentences are cut into windows and batches.

A sentence's result must not depend on the padding or on the other sentences of its batch.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import numpy as np

from nmt.settings.sections import BatchOptions
from nmt.text.sentences import Sentence
from nmt.text.shapes import Shape, Sizes, bucketed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentences of all streams, padded to a common shape.

    ids, masks: for each stream, sources first: int32 and float32 ``[rows, length]``, padded with 0. Rows from
        ``sentences`` on repeat row 0, so their values are finite and their search ends with row 0's; their
        results are dropped. In training the target mask (the last) is 0 there.
    sentences: how many rows are real.
    weights: float32 ``[rows, target length]``, the weight of each target word (``--data-weighting``); None
        for 1.
    alignment: float32 ``[rows, target length, source length]``, how many links connect both words
        (``--guided-alignment``), or None.
    packed: for models that train on packed sentences, how many rows each packed stream gets (``TextRows``):
        for the whole batch if one device computes it in one piece, else for each part. None for as many as
        the shape may need.
    """

    ids: tuple[np.ndarray, ...]
    masks: tuple[np.ndarray, ...]
    sentences: int
    weights: np.ndarray | None = None
    alignment: np.ndarray | None = None
    packed: tuple[int, ...] | None = None

    @property
    def words(self) -> int:
        """How many target words there are, ``</s>`` included; Marian's ``wordsTrg``."""
        return int(self.masks[-1].sum())

    @property
    def shape(self) -> Shape:
        """Rows, then the padded length of each stream; one program is compiled per shape."""
        return (len(self.ids[0]), *(ids.shape[1] for ids in self.ids))

    def split(self, parts: int) -> list[Batch]:
        """At most ``parts`` batches of nearly equal size. Each sentence goes into a different batch than the
        sentence before it, because neighbours are about equally long. The number of rows depends only on the
        shape of this batch and is the same in all parts, so one program serves all."""
        rows = -(-len(self.ids[0]) // parts)
        return [
            self._of(np.arange(first, self.sentences, parts), rows)
            for first in range(min(parts, self.sentences))
        ]

    def shortened(self, sentences: int) -> Batch:
        """The first ``sentences`` sentences, or all if there are fewer."""
        return self if sentences >= self.sentences else self._of(np.arange(sentences), sentences)

    def with_rows(self, rows: int) -> Batch:
        """The same sentences, padded to ``rows`` rows."""
        return self if rows == len(self.ids[0]) else self._of(np.arange(self.sentences), rows)

    def _of(self, own: np.ndarray, rows: int) -> Batch:
        """These sentences, padded to ``rows`` rows."""
        sentences = len(own)
        chosen = np.full(rows, own[0])
        chosen[:sentences] = own
        masks = [mask[chosen] for mask in self.masks]
        masks[-1][sentences:] = 0
        return Batch(
            tuple(ids[chosen] for ids in self.ids),
            tuple(masks),
            sentences,
            None if self.weights is None else self.weights[chosen],
            None if self.alignment is None else self.alignment[chosen],
            self.packed,
        )


def pad(
    streams: Sequence[Sequence[Sequence[int]]], shape: Shape | None = None, *, target: bool = False
) -> Batch:
    """Pad the sentences of several streams to one batch.

    streams: for each stream the word ids of all sentences: at least one sentence, at least one id in each
        (the final ``</s>``).
    shape: rows, then the length of each stream; None for the sentences' own, ``bucketed``.
    target: whether the last stream is a training target: its mask is 0 in rows without a sentence.
    """
    sentences = len(streams[0])
    if shape is None:
        shape = bucketed((sentences, *(max(map(len, words)) for words in streams)))
    tables = [table(words, (shape[0], length)) for words, length in zip(streams, shape[1:], strict=True)]
    masks = [inside.astype(np.float32) for _, inside in tables]
    if target:
        masks[-1][sentences:] = 0
    return Batch(tuple(ids for ids, _ in tables), tuple(masks), sentences)


def table(
    sequences: Sequence[Sequence[int] | np.ndarray], shape: tuple[int, int], filling: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """``sequences`` padded with ``filling`` to int32 ``shape``, and a bool mask of the real numbers.

    Rows after the last sequence repeat the first.
    """
    assert len(sequences) <= shape[0]  # else rows would be lost silently
    inside = np.arange(shape[1]) < np.fromiter(map(len, sequences), np.int64)[:, None]
    found = np.full(inside.shape, filling, np.int32)
    found[inside] = np.concatenate(sequences)
    rows = np.arange(shape[0])
    rows[len(sequences) :] = 0
    return found[rows], inside[rows]


def pad_for_training(
    sentences: Sequence[Sentence], shape: Shape, packed: tuple[int, ...] | None = None
) -> Batch:
    """Pad ``sentences`` with their weights and alignments to ``shape``."""
    streams = list(zip(*(sentence.sequences for sentence in sentences), strict=True))
    batch = replace(pad(streams, shape, target=True), packed=packed)
    if sentences[0].weights is not None:
        weights = np.ones(batch.ids[-1].shape, np.float32)
        for row, sentence in zip(weights, sentences, strict=False):
            own = sentence.weights or []
            row[: len(own)] = own
        batch = replace(batch, weights=weights)
    if sentences[0].alignment is not None:
        alignment = np.zeros((*batch.ids[-1].shape, shape[1]), np.float32)
        for part, sentence in zip(alignment, sentences, strict=False):
            links = np.array(sentence.alignment or [], np.int64).reshape(-1, 2)
            np.add.at(part, (links[:, 1], links[:, 0]), 1)
        batch = replace(batch, alignment=alignment)
    return batch


def windows(sentences: Iterable[T], ahead: int) -> Iterator[list[T]]:
    """For translation and scoring: ``ahead`` sentences at a time; the next are read when these are done."""
    remaining = iter(sentences)
    return iter(lambda: list(islice(remaining, min(ahead, sys.maxsize))), [])


class _Queued(int):
    """A sentence's rank in its maxi-batch; sentences of equal rank compare equal."""

    sentence: Sentence


@dataclass(frozen=True)
class Batching:
    """Cuts sentences into the batches of a training: sorts a maxi-batch by length, and cuts it.

    With ``mini_batch_words`` other than 0 a batch is full as soon as its first source has more words than
    that. ``maxi_batch_sort``: ``trg`` or ``src`` to sort by the length of the target or of the first source,
    then of the other streams, longest first, so that running out of memory shows at once.

    sizes: how many sentences fit into memory (``--mini-batch-fit``); if given, a batch is full when no more
    fit.

    The last batch of a maxi-batch may be smaller than the others.
    """

    options: BatchOptions
    sizes: Sizes | None = None

    @property
    def capacity(self) -> int:
        """How many sentences are read ahead."""
        return self.options.mini_batch * self.options.maxi_batch

    def marian_batches(self, sentences: Sequence[Sentence]) -> list[list[Sentence]]:
        """Marian's batches of a maxi-batch.

        Sentences of equal length come in the order of Marian's priority queue; with ``none`` all come from
        the last line to the first.
        """
        # Given the same comparisons, heapq orders its heap as C++'s priority queue does, but smallest first:
        # hence the negated ranks.
        queue: list[_Queued] = []
        for sentence in sentences:
            queued = _Queued(-self._rank(sentence))
            queued.sentence = sentence
            heapq.heappush(queue, queued)
        if self.sizes is None:
            return list(self._cut(heapq.heappop(queue).sentence for _ in sentences))
        batches: list[list[Sentence]] = []
        while queue:
            batches.append(self._fitting(queue, self.sizes))
        return batches

    def _rank(self, sentence: Sentence) -> int:
        """The larger its rank, the earlier a sentence comes."""
        if self.options.maxi_batch_sort == "none":
            return sentence.line
        rank = 0
        for words in sentence.sequences[:: 1 if self.options.maxi_batch_sort == "src" else -1]:
            rank = rank << 32 | len(words)
        return rank

    def _cut(self, ordered: Iterable[Sentence]) -> Iterator[list[Sentence]]:
        batch: list[Sentence] = []
        words, most_words = 0, self.options.mini_batch_words
        for sentence in ordered:
            batch.append(sentence)
            words += len(sentence.sequences[0])
            if words > most_words if most_words else len(batch) == self.options.mini_batch:
                yield batch
                batch, words = [], 0
        if batch:
            yield batch

    def _fitting(self, queue: list[_Queued], sizes: Sizes) -> list[Sentence]:
        """As many sentences as fit; one too long for this batch goes into the next."""
        batch: list[Sentence] = []
        lengths: tuple[int, ...] = ()
        while queue:
            queued = heapq.heappop(queue)
            own = tuple(map(len, queued.sentence.sequences))
            lengths = tuple(map(max, lengths, own)) if lengths else own
            most = max(1, sizes(lengths))
            if len(batch) + 1 > most:
                heapq.heappush(queue, queued)
                break
            batch.append(queued.sentence)
            if len(batch) == most:
                break
        return batch
