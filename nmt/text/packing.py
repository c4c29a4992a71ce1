"""Sentences packed without padding between them: into bins to translate, into running rows to train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


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


class Running(NamedTuple):
    """Sentences of one stream in rows of ``WIDTH`` words, one after the other, across the ends of rows;
    ``layers.PackedWords`` and ``nmt.models.PackedText`` explain the arrays.

    Sentences come in groups of as many; those of a group are in as many rows of their own.
    """

    ids: np.ndarray
    positions: np.ndarray
    origins: np.ndarray
    places: np.ndarray
    groups: int

    @classmethod
    def of(cls, ids: np.ndarray, lengths: np.ndarray, rows: int, groups: int = 1) -> Running:
        """Pack the first ``lengths (batch,)`` words of ``ids (batch, length)`` into ``rows`` rows for each
        group."""
        batch, length = ids.shape
        room, own = rows * WIDTH, batch // groups
        inside = np.arange(length) < lengths[:, None]
        ends = lengths.reshape(groups, own).cumsum(1)
        starts = (ends - lengths.reshape(groups, own)).reshape(batch)
        within = np.where(inside, starts[:, None] + np.arange(length), room).astype(np.int32)
        group = np.repeat(np.arange(groups), own)[:, None]
        whole = (within + room * group)[inside]
        found, positions = np.zeros(groups * room, np.int32), np.zeros(groups * room, np.int32)
        origins = np.full(groups * room, own * length, np.int32)
        found[whole] = ids[inside]
        sentence, position = np.nonzero(inside)
        positions[whole] = position
        origins[whole] = sentence % own * length + position
        shape = groups * rows, WIDTH
        return cls(found.reshape(shape), positions.reshape(shape), origins.reshape(shape), within, groups)

    def taken_up(self, values: np.ndarray) -> np.ndarray:
        """Values of words ``(batch, length)`` in their rows; 0 where there is no word."""
        by_group = values.reshape(self.groups, -1)
        padded = np.concatenate([by_group, np.zeros((self.groups, 1), values.dtype)], 1)
        origins = self.origins.reshape(self.groups, -1)
        return np.take_along_axis(padded, origins, 1).reshape(self.origins.shape)
