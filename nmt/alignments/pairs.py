"""Pairs of sentences as arrays of word numbers, and the cells that their words span."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

MOST_CELLS = 1 << 18
"""Pairs are processed together up to this many cells, which bounds the memory; a pair is never divided."""


@dataclass(frozen=True)
class NumberedText:
    """The sentences of one language.

    words: int32, the numbers of the words of all sentences. offsets: int64 ``[sentences + 1]``;
    ``words[offsets[k]:offsets[k + 1]]`` is sentence ``k``. size: how many different words there are.
    """

    words: np.ndarray
    offsets: np.ndarray
    size: int

    @property
    def lengths(self) -> np.ndarray:
        """int64 ``[sentences]``."""
        return np.diff(self.offsets)


class Numbering:
    """Collects the sentences of one language, and numbers words in the order in which they first occur."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._words, self._offsets = array("i"), array("q", [0])

    def add(self, sentence: Sequence[Hashable]) -> None:
        """Add a sentence, given as words."""
        numbers = self._numbers
        self._words.extend([numbers.setdefault(word, len(numbers)) for word in sentence])
        self._offsets.append(len(self._words))

    @property
    def side(self) -> NumberedText:
        """The sentences that have been added."""
        words, offsets = np.array(self._words, np.int32), np.array(self._offsets, np.int64)
        return NumberedText(words, offsets, len(self._numbers))


@dataclass(frozen=True)
class Cells:
    """The cells of some sentence pairs: a row for each target word, with a cell for each source word.

    target: int32 ``[rows]``, the number of the target word. row: int64 ``[cells]``, the row of each cell.
    source: int32 ``[cells]``, the number of the source word.
    i, m, n: float64 ``[rows]``: the target word's position, from 1, and the lengths of target and source.
    j: float64 ``[cells]``, the source word's position, from 1.
    starts: int64 ``[rows]``, the first cell of each row.
    """

    target: np.ndarray
    row: np.ndarray
    source: np.ndarray
    i: np.ndarray
    m: np.ndarray
    n: np.ndarray
    j: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Pairs:
    """Sentence ``k`` of the source with sentence ``k`` of the target. A pair with an empty side has no cells.

    source: where links come from. target: the words that are explained, each by one source word or none.
    """

    source: NumberedText
    target: NumberedText

    @classmethod
    def of(cls, rows: Iterable[tuple[Sequence[Hashable], Sequence[Hashable]]]) -> Pairs:
        """From rows of a source and a target sentence, each a sequence of words."""
        source, target = Numbering(), Numbering()
        for row in rows:
            source.add(row[0])
            target.add(row[1])
        return cls(source.side, target.side)

    @cached_property
    def full(self) -> np.ndarray:
        """For each pair whether both sides have words."""
        return (self.source.lengths > 0) & (self.target.lengths > 0)

    @property
    def turned(self) -> Pairs:
        """The pairs with their sides exchanged."""
        return Pairs(self.target, self.source)

    @property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The different lengths ``[sizes, 2]`` of target and source, and how many pairs have each."""
        lengths = np.stack([self.target.lengths[self.full], self.source.lengths[self.full]], axis=1)
        return np.unique(lengths, axis=0, return_counts=True)

    def parts(self) -> Iterator[tuple[int, int]]:
        """Ranges of pairs with at most ``MOST_CELLS`` cells, or one pair."""
        ends = np.cumsum(self.source.lengths * self.target.lengths)
        first, pairs = 0, len(ends)
        while first < pairs:
            before = ends[first - 1] if first else 0
            end = max(int(np.searchsorted(ends, before + MOST_CELLS, "right")), first + 1)
            yield first, end
            first = end

    def cells(self, first: int, end: int) -> Cells:
        """The cells of the pairs from ``first`` to before ``end``."""
        pairs = np.flatnonzero(self.full[first:end]) + first
        m, n = self.target.lengths[pairs], self.source.lengths[pairs]
        position = _counted(m)
        target = self.target.words[np.repeat(self.target.offsets[pairs], m) + position]
        n_of_row, source_start = np.repeat(n, m), np.repeat(self.source.offsets[pairs], m)
        row = np.repeat(np.arange(len(target)), n_of_row)
        j = _counted(n_of_row)
        return Cells(
            target=target,
            row=row,
            source=self.source.words[source_start[row] + j],
            i=position + 1.0,
            m=np.repeat(m, m).astype(np.float64),
            n=n_of_row.astype(np.float64),
            j=j + 1.0,
            starts=np.cumsum(n_of_row) - n_of_row,
        )


def _counted(lengths: np.ndarray) -> np.ndarray:
    """``0 1 ... lengths[0] - 1 0 1 ... lengths[1] - 1 ...``"""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
