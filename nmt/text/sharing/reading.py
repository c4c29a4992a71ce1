"""The shares of several processes in reading a corpus.

Word ids are expensive to find and small to send: each process finds those of every n-th row and sends them to
the others. Rows, their order and the batches are the same in all processes, whatever their number; each reads
and shuffles all lines itself, which costs less than a tenth of splitting them into words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from nmt.text.order import Numbered
from nmt.text.parallel import Row
from nmt.text.sentences import REASONS, Sentence, SentenceReader

ROWS = 1 << 12
"""How many rows are exchanged at once."""
_ABSENT = -1

Reading = tuple[Row, Sentence]
"""A row and its sentence."""
Chunk = tuple[list[Numbered], np.ndarray]
"""Rows, and the sentences of this process's share of them, as numbers."""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one process, and how it gets those of the others.

    Its ``own`` sentences may be found in a thread, ahead of training. ``all`` waits for the other processes:
    call it for the same rows in the same order, and where no other collective operation can come between.

    index: the number of this process, from 0. count: how many there are. exchange: from int32 ``[n]`` of this
    process those of all, in order; ``n`` may differ.
    """

    index: int
    count: int
    exchange: Callable[[np.ndarray], Sequence[np.ndarray]]

    def own(self, reader: SentenceReader, rows: Iterable[Numbered], epoch: int) -> Iterator[Chunk]:
        """The rows, many at a time, with the sentences of this process."""
        remaining = iter(rows)
        while some := list(islice(remaining, ROWS)):
            own = [reader.read(number, row, epoch) for number, row in some[self.index :: self.count]]
            yield some, to_numbers(own)

    def all(self, chunks: Iterable[Chunk]) -> Iterator[Reading]:
        """The rows in order, with their sentences."""
        for rows, own in chunks:
            shares = [
                from_numbers(numbers, [line for line, _ in rows[index :: self.count]])
                for index, numbers in enumerate(self.exchange(own))
            ]
            for place, (_, row) in enumerate(rows):
                index = place % self.count
                yield row, shares[index][place // self.count]


def to_numbers(sentences: Sequence[Sentence]) -> np.ndarray:
    """The sentences as one int32 array, without the numbers of their lines; weights in 32 bits."""
    parts: list[Sequence[int] | np.ndarray] = []
    for sentence in sentences:
        links, weights = sentence.alignment, sentence.weights
        parts.append(
            (
                REASONS.index(sentence.problem),
                _ABSENT if links is None else len(links),
                _ABSENT if weights is None else len(weights),
                len(sentence.sequences),
                *map(len, sentence.sequences),
            )
        )
        parts += sentence.sequences
        parts.append(tuple(chain.from_iterable(links or ())))
        if weights:
            parts.append(np.array(weights, np.float32).view(np.int32))
    return np.fromiter(chain.from_iterable(parts), np.int32)


def from_numbers(numbers: np.ndarray, lines: Sequence[int]) -> list[Sentence]:
    """The sentences of these ``lines`` that became ``numbers``."""
    rest = np.asarray(numbers, np.int32)

    def taken(count: int) -> list[int]:
        nonlocal rest
        part, rest = rest[:count].tolist(), rest[count:]
        return part

    found = []
    for line in lines:
        reason, links, weights, streams = taken(4)
        sequences = tuple([taken(length) for length in taken(streams)])
        places = taken(2 * max(links, 0))
        alignment = None if links == _ABSENT else list(zip(places[::2], places[1::2], strict=True))
        bits = np.array(taken(max(weights, 0)), np.int32)
        own = None if weights == _ABSENT else bits.view(np.float32).tolist()
        found.append(Sentence(line, sequences, REASONS[reason], alignment, own))
    return found
