"""Batches of sentences: Marian's mini-batches and maxi-batches, and the shapes they are padded to.

A program is compiled for each padded shape, so shapes are few: lengths are rounded up to
``length_bucket``, numbers of sentences to ``batch_bucket``. What a sentence becomes must not depend
on the padding, nor on the other sentences of its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

SHORTEST_BUCKET = 8
BATCH_OPTIONS = ("mini_batch", "mini_batch_words", "maxi_batch", "maxi_batch_sort")
"""The options that ``batches`` and ``maxi_batches`` take."""


def length_bucket(length: int) -> int:
    """The padded length for a sequence of ``length`` words: 8, 16, 24, 32, 48, 64, 96, 128, 192, ...

    From 16 on these are the powers of two and the numbers halfway between them, so that a bucket
    is at most 1.5 times the one below it: a batch wastes less than a third of its positions, and
    a thousand words make 13 buckets.
    """
    if length <= SHORTEST_BUCKET:
        return SHORTEST_BUCKET
    power = 1 << (length - 1).bit_length()  # the power of two at or above `length`
    halfway = power * 3 // 4
    return halfway if length <= halfway and power > 2 * SHORTEST_BUCKET else power


def batch_bucket(sentences: int, largest: int | None = None) -> int:
    """The padded number of sentences: the next power of two, but at most ``largest``.

    ``largest`` is the size of a full batch (``--mini-batch``): full batches are not padded.
    """
    power = 1 << max(sentences - 1, 0).bit_length()
    return power if largest is None or largest < sentences else min(power, largest)


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


@dataclass(frozen=True, slots=True)
class Sample:
    """One input line, or one line of each input, as word ids.

    line: its number, from 0.
    sequences: word ids of each stream (source; or source and target), ``</s>`` included.
    problem: why the line is not to be computed, or empty. Such a sample joins no batch.
    """

    line: int
    sequences: tuple[list[int], ...]
    problem: str = ""


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
