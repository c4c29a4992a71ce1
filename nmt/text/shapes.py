"""A few lengths for many sentences, because one program is compiled per shape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations

SHORTEST_BUCKET = 8
PATIENCE = 10
"""A program that only saves padding must save its price this many times over."""

Shape = tuple[int, ...]
"""Rows, then the length of each stream."""

Sizes = Callable[[tuple[int, ...]], int]
"""How many sentences fit into memory, given the longest length of each stream (``--mini-batch-fit``)."""


def length_bucket(length: int) -> int:
    """The padded length for a sequence of ``length`` words: 8, 16, 24, 32, 48, 64, 96, 128, 192, ...

    From 16 on these are the powers of two and the numbers halfway between them: each bucket is at most 1.5
    times the one below, so a batch wastes less than a third of its positions, and 13 buckets reach a
    thousand words.
    """
    if length <= SHORTEST_BUCKET:
        return SHORTEST_BUCKET
    power = 1 << (length - 1).bit_length()  # the power of two at or above `length`
    halfway = power * 3 // 4
    return halfway if length <= halfway and power > 2 * SHORTEST_BUCKET else power


def batch_bucket(sentences: int) -> int:
    """The padded number of sentences: the next power of two."""
    return 1 << max(sentences - 1, 0).bit_length()


def bucketed(batch: Shape) -> Shape:
    """A shape rounded up: rows to ``batch_bucket``, lengths to ``length_bucket``."""
    return (batch_bucket(batch[0]), *map(length_bucket, batch[1:]))


def few_lengths(
    lengths: Mapping[int, int],
    ladder: Iterable[int],
    cost: Callable[[int, int], float],
    *,
    price: float,
    most: int,
    known: Collection[int] = (),
    top: int = 0,
) -> list[int]:
    """Choose a few lengths from ``ladder`` and ``known`` to which padding costs least; ascending.

    lengths: how many sentences there are of each length. cost: that of a sentence of some length, padded to
    another. price: what programs for a new length cost, in the same unit. most: how many may be chosen.
    known: lengths that have programs. top: the last length chosen is at least this.

    Few lengths waste positions on padding, and each new one takes time to compile: the smallest sum of both
    wins. If the known lengths suffice, a new one must save ``PATIENCE`` times its price, so that calls like
    earlier ones compile nothing.
    """
    longest, rungs = max(max(lengths), top), sorted({*ladder, *known})
    if known and max(known) >= longest:
        price *= PATIENCE

    def total(chosen: Sequence[int]) -> float:
        padded = {length: next(each for each in chosen if each >= length) for length in lengths}
        spent = sum(count * cost(length, padded[length]) for length, count in lengths.items())
        return spent + price * len({*chosen} - {*known})

    options = [
        list(chosen)
        for number in range(1, most + 1)
        for chosen in combinations(rungs, number)
        if chosen[-1] >= longest
    ]
    return min(options, key=total)
