"""Sentences packed without padding between them: into bins to translate, into running rows to train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

import numpy as np

T = TypeVar("T", int, np.ndarray)


class Packed(NamedTuple):
    """Arrays of packed sentences; ``nmt.models.PackedSource`` explains them."""

    ids: np.ndarray
    sentences: np.ndarray
    positions: np.ndarray
    places: np.ndarray
    mask: np.ndarray


class Bins:
    """``count`` bins for ``width`` words of one stream each."""

    def __init__(self, count: int, width: int) -> None:
        self.count, self.width = count, width
        self._free = [width] * count
        self._starts: list[int] = []

    def find(self, length: int) -> int | None:
        """The first bin with room for a sentence of this length, or None."""
        return next((i for i, free in enumerate(self._free) if free >= length), None)

    def add(self, length: int) -> None:
        """Give the next sentence its place; there must be a bin with room."""
        found = self.find(length)
        assert found is not None
        self._starts.append((found + 1) * self.width - self._free[found])
        self._free[found] -= length

    def narrowed(self, width: int) -> Bins:
        """One bin, cut off after ``width`` words; what it has must fit."""
        assert self.count == 1 and self.width - self._free[0] <= width
        found = Bins(1, width)
        found._free, found._starts = [self._free[0] + width - self.width], list(self._starts)
        return found

    def filled(self, sentences: Sequence[Sequence[int]], shape: tuple[int, int]) -> Packed:
        """The sentences that were added, whose words are laid out in ``shape``: sentences, words.

        Rows after the last sentence repeat the first.
        """
        size = self.count * self.width
        ids, numbers, positions = (np.full(size, filling, np.int32) for filling in (0, len(sentences), 0))
        places, mask = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        for number, (start, words) in enumerate(zip(self._starts, sentences, strict=True)):
            own = np.arange(len(words), dtype=np.int32)
            ids[start + own], numbers[start + own], positions[start + own] = words, number, own
            places[number, own], mask[number, own] = start + own, 1
        places[len(sentences) :], mask[len(sentences) :] = places[0], mask[0]
        packed = self.count, self.width
        return Packed(ids.reshape(packed), numbers.reshape(packed), positions.reshape(packed), places, mask)


WIDTH = 32
"""The words in a row of packed training sentences. All rows share a mask of dropout."""


def rows_for(words: int) -> int:
    """How many rows so many words need."""
    return -(-words // WIDTH)


def whole_width(longest: T) -> T:
    """The words in a row for whole sentences: a quarter more than the longest may have, rounded up. A
    recurrence takes a step for each, so rows must be short; but two usual sentences should find room in one.
    Batches of nearly the same lengths should have the same width, so that they need about as many rows."""
    return 8 * -(-5 * longest // 32)


def whole_rows(lengths: Sequence[int], width: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Sentences of these lengths in few rows of ``width`` words, each within one: the row and the first
    column of each, and how many rows there are. Those without words take none.

    Best fit, the longest first: each goes where it leaves the least room.
    """
    count = 0
    rows, columns = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    open_rows: list[list[int]] = [[] for _ in range(width + 1)]
    """Rows by the room that is left."""
    rooms = 0
    """Which of the lists have rows, as bits."""
    for i in sorted(np.flatnonzero(lengths).tolist(), key=lambda i: -lengths[i]):
        enough = rooms >> lengths[i]
        if enough:
            room = lengths[i] + (enough & -enough).bit_length() - 1
            row = open_rows[room].pop()
            if not open_rows[room]:
                rooms ^= 1 << room
        else:
            room, row, count = width, count, count + 1
        rows[i], columns[i] = row, width - room
        left = room - lengths[i]
        if left:
            open_rows[left].append(row)
            rooms |= 1 << left
    return rows, columns, count


TIERS = (1, 1, 1), (3, 3, 4), (4, 3, 5)
"""Tiers of a batch sorted by length, longest first: ``(eighths of the sentences, numerator, denominator)``; a
tier has room for that fraction of the longest sentence. Chosen for sources as long as in Europarl, in batches
of sentences whose targets are about equally long: two thirds of the padding are gone."""


def tiers(sentences: int, length: int) -> tuple[tuple[int, int], ...]:
    """So many sentences of a batch, sorted, the longest first, and how many words these may have."""
    return tuple((count, -(-length * part // whole)) for _, count, part, whole in _tiers(sentences))


def tiered_length(lengths: Sequence[int]) -> int:
    """The least length for which the ``tiers`` have room for sentences of these lengths."""
    falling = sorted(lengths, reverse=True)
    starts = ((falling[first], part, whole) for first, _, part, whole in _tiers(len(falling)))
    return max(((longest - 1) * whole // part + 1 for longest, part, whole in starts), default=0)


def _tiers(sentences: int) -> Iterator[tuple[int, int, int, int]]:
    """Of each tier that has some: its first sentence, how many there are, and the fraction of the length."""
    eighths = accumulate((eighths for eighths, _, _ in TIERS), initial=0)
    ends = (-(-sentences * each // 8) for each in eighths)
    for (first, end), (_, part, whole) in zip(pairwise(ends), TIERS, strict=True):
        if first < end:
            yield first, end - first, part, whole


class TextRows(NamedTuple):
    """Sentences of one stream in rows, one after the other; ``layers.PackedWords`` and
    ``nmt.models.PackedText`` explain the arrays.

    Sentences come in groups of as many; those of a group are in as many rows of their own.
    """

    ids: np.ndarray
    positions: np.ndarray
    origins: np.ndarray
    places: np.ndarray
    groups: int

    @classmethod
    def running(cls, ids: np.ndarray, lengths: np.ndarray, rows: int, groups: int = 1) -> TextRows:
        """The first ``lengths (batch,)`` words of ``ids (batch, length)`` in ``rows`` rows of ``WIDTH`` words
        for each group, across the ends of rows."""
        ends = lengths.reshape(groups, -1).cumsum(1).reshape(-1)
        return cls._placed(ids, lengths, ends - lengths, (rows, WIDTH), groups)

    @classmethod
    def whole(cls, ids: np.ndarray, lengths: np.ndarray, rows: int, groups: int = 1) -> TextRows:
        """The same in rows of ``whole_width`` that hold whole sentences; in more than ``rows`` rows if these
        are too few."""
        width = whole_width(ids.shape[1])
        found = [whole_rows(own.tolist(), width) for own in lengths.reshape(groups, -1)]
        starts = np.concatenate([row * width + column for row, column, _ in found])
        return cls._placed(ids, lengths, starts, (max(rows, *(n for *_, n in found)), width), groups)

    @classmethod
    def _placed(
        cls, ids: np.ndarray, lengths: np.ndarray, starts: np.ndarray, size: tuple[int, int], groups: int
    ) -> TextRows:
        """Sentences whose first words have the places ``starts (batch,)`` in rows of this size."""
        batch, length = ids.shape
        rows, width = size
        room, own = rows * width, batch // groups
        inside = np.arange(length) < lengths[:, None]
        within = np.where(inside, starts[:, None] + np.arange(length), room).astype(np.int32)
        group = np.repeat(np.arange(groups), own)[:, None]
        whole = (within + room * group)[inside]
        found, positions = np.zeros(groups * room, np.int32), np.zeros(groups * room, np.int32)
        origins = np.full(groups * room, own * length, np.int32)
        found[whole] = ids[inside]
        sentence, position = np.nonzero(inside)
        positions[whole] = position
        origins[whole] = sentence % own * length + position
        shape = groups * rows, width
        return cls(found.reshape(shape), positions.reshape(shape), origins.reshape(shape), within, groups)

    def taken_up(self, values: np.ndarray) -> np.ndarray:
        """Values of words ``(batch, length)`` in their rows; 0 where there is no word."""
        by_group = values.reshape(self.groups, -1)
        padded = np.concatenate([by_group, np.zeros((self.groups, 1), values.dtype)], 1)
        origins = self.origins.reshape(self.groups, -1)
        return np.take_along_axis(padded, origins, 1).reshape(self.origins.shape)
