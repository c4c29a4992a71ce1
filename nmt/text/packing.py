"""Sentences packed without padding between them: in bins for translation, in running rows for training."""

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
    """``count`` bins, each for ``width`` words of one stream."""

    def __init__(self, count: int, width: int) -> None:
        self.count, self.width = count, width
        self._free = [width] * count
        self._starts: list[int] = []

    def find(self, length: int) -> int | None:
        """The first bin with room for a sentence of this length, or None."""
        return next((i for i, free in enumerate(self._free) if free >= length), None)

    def add(self, length: int) -> None:
        """Place the next sentence in the first bin with room; there must be one."""
        found = self.find(length)
        assert found is not None
        self._starts.append((found + 1) * self.width - self._free[found])
        self._free[found] -= length

    def narrowed(self, width: int) -> Bins:
        """The only bin, cut off after ``width`` words; its sentences must fit."""
        assert self.count == 1 and self.width - self._free[0] <= width
        found = Bins(1, width)
        found._free, found._starts = [self._free[0] + width - self.width], list(self._starts)
        return found

    def filled(self, sentences: Sequence[Sequence[int]], shape: tuple[int, int]) -> Packed:
        """The arrays of the sentences that were added.

        shape: that of ``places`` and ``mask``: sentences, words. Rows after the last sentence repeat row 0.
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
"""The words in a row of packed training sentences. All rows share one dropout mask."""


def rows_for(words: int) -> int:
    """How many rows this many words need."""
    return -(-words // WIDTH)


def whole_width(longest: T) -> T:
    """The width of rows that hold whole sentences: a quarter more than the longest length, rounded up.

    A recurrence takes one step per column, so rows must be short; but two typical sentences should fit into
    one row. Rounding gives batches of nearly equal lengths the same width, so they need about as many rows.
    """
    return 8 * -(-5 * longest // 32)


def whole_rows(lengths: Sequence[int], width: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Place sentences of these lengths in few rows of ``width`` words, each within one row.

    Returns the row and the first column of each sentence, and the number of rows. Empty sentences take no
    row. Best fit, the longest first: each sentence goes into the row where it leaves the least room.
    """
    count = 0
    rows, columns = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    open_rows: list[list[int]] = [[] for _ in range(width + 1)]
    """Rows by the room left in them."""
    rooms = 0
    """Which of these lists have rows, as bits."""
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
tier has room for that fraction of the longest sentence. Chosen for the source lengths of Europarl, in batches
of sentences whose targets are about equally long: there they remove two thirds of the padding."""


def tiers(sentences: int, length: int) -> tuple[tuple[int, int], ...]:
    """For each tier of a batch sorted longest first: how many sentences, and how many words they may have."""
    return tuple((count, -(-length * part // whole)) for _, count, part, whole in _tiers(sentences))


def tiered_length(lengths: Sequence[int]) -> int:
    """The smallest length whose ``tiers`` have room for sentences of these lengths."""
    falling = sorted(lengths, reverse=True)
    starts = ((falling[first], part, whole) for first, _, part, whole in _tiers(len(falling)))
    return max(((longest - 1) * whole // part + 1 for longest, part, whole in starts), default=0)


def _tiers(sentences: int) -> Iterator[tuple[int, int, int, int]]:
    """For each tier that is not empty: its first sentence, its size, and its fraction of the length."""
    eighths = accumulate((eighths for eighths, _, _ in TIERS), initial=0)
    ends = (-(-sentences * each // 8) for each in eighths)
    for (first, end), (_, part, whole) in zip(pairwise(ends), TIERS, strict=True):
        if first < end:
            yield first, end - first, part, whole


class TextRows(NamedTuple):
    """Sentences of one stream packed in rows, one after another; ``layers.PackedWords`` and
    ``nmt.models.PackedText`` explain the arrays.

    The sentences form groups of equal size. Each group has its own rows, the same number in every group.
    """

    ids: np.ndarray
    positions: np.ndarray
    origins: np.ndarray
    places: np.ndarray
    groups: int

    @classmethod
    def running(cls, ids: np.ndarray, lengths: np.ndarray, rows: int, groups: int = 1) -> TextRows:
        """Pack the first ``lengths (batch,)`` words of ``ids (batch, length)``, across the ends of rows; each
        group has ``rows`` rows of ``WIDTH`` words."""
        ends = lengths.reshape(groups, -1).cumsum(1).reshape(-1)
        return cls._placed(ids, lengths, ends - lengths, (rows, WIDTH), groups)

    @classmethod
    def whole(cls, ids: np.ndarray, lengths: np.ndarray, rows: int, groups: int = 1) -> TextRows:
        """Like ``running``, but in rows of ``whole_width`` that hold whole sentences, and in more than
        ``rows`` rows if these are too few."""
        width = whole_width(ids.shape[1])
        found = [whole_rows(own.tolist(), width) for own in lengths.reshape(groups, -1)]
        starts = np.concatenate([row * width + column for row, column, _ in found])
        return cls._placed(ids, lengths, starts, (max(rows, *(n for *_, n in found)), width), groups)

    @classmethod
    def _placed(
        cls, ids: np.ndarray, lengths: np.ndarray, starts: np.ndarray, size: tuple[int, int], groups: int
    ) -> TextRows:
        """Pack sentences whose first words have the places ``starts (batch,)`` in rows of this size."""
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
        """Values of words ``(batch, length)``, moved into the rows; 0 where there is no word."""
        by_group = values.reshape(self.groups, -1)
        padded = np.concatenate([by_group, np.zeros((self.groups, 1), values.dtype)], 1)
        origins = self.origins.reshape(self.groups, -1)
        return np.take_along_axis(padded, origins, 1).reshape(self.origins.shape)
