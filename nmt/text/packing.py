"""Sentences packed into bins, without padding between them."""

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
