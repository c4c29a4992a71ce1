"""Full batches of few shapes, because each shape needs its own compiled program."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from mgraph.device import platform_of
from nmt.text.shapes import few_lengths, length_bucket

FEW_ROWS = 8
MOST_LENGTHS = 3
MOST_NUMBERS = 1 << 27
"""How many 4-byte numbers, such as logits, a batch may compute."""
KEPT_NUMBERS = 1 << 12
"""About how many numbers a model keeps for each word that it encodes."""
POSITIONS = {"cpu": 2048}
"""The most positions of a batch, by platform: on a CPU larger batches are not more efficient, and the last
one would have more padding."""
PROGRAM = 25_000
"""About how many positions are scored in the time that compiling a program takes."""


class FewBatches:
    """Cuts sentences into batches of few shapes: a new shape, which needs a new program, is used only if
    padding to known shapes costs more.

    mini_batch: the most sentences in a batch. mini_batch_words: the most words of a stream in a batch,
    padding included; 0: any number. numbers: how many are computed for each word.
    """

    def __init__(self, mini_batch: int, mini_batch_words: int, numbers: int) -> None:
        self._mini_batch, self._words, self._numbers = mini_batch, mini_batch_words, numbers
        self._lock = threading.Lock()
        self._seen: Counter[int] = Counter()
        self._shapes: set[tuple[int, int]] = set()
        self._wasted: Counter[tuple[int, int]] = Counter()

    def __call__(self, lengths: Sequence[int]) -> Iterator[tuple[list[int], tuple[int, int]]]:
        """The batches of sentences whose longest streams have these lengths: for each, the indices of its
        sentences, and its rows and padded length. Remembers which shapes have programs."""
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
            ladder = map(length_bucket, self._seen)
            known = {length for _, length in self._shapes}
            chosen = few_lengths(
                self._seen, ladder, _positions, price=PROGRAM, most=MOST_LENGTHS, known=known
            )
        return [min(each for each in chosen if each >= length) for length in lengths]

    def _most(self, length: int) -> int:
        """The rows of a full batch: a power of two, so that a program serves all batches of a length."""
        positions = self._words, POSITIONS.get(platform_of(None), 0), MOST_NUMBERS // self._numbers
        most = min(self._mini_batch, *(each // length for each in positions if each))
        return 1 << max(1, most).bit_length() - 1

    def _rows(self, sentences: int, most: int, length: int) -> int:
        """The rows for this many sentences: those of a known program, until padding to them has wasted the
        cost of a new one."""
        rows = next((rows for rows in (1, FEW_ROWS) if sentences <= rows < most), most)
        with self._lock:
            known = [each for each, own in self._shapes if own == length and each >= rows]
            nearest = min(known, default=rows)
            self._wasted[rows, length] += (nearest - rows) * length
            if self._wasted[rows, length] <= PROGRAM:
                rows = nearest
            self._shapes.add((rows, length))
        return rows


def _positions(length: int, padded: int) -> float:
    return padded
