"""How several processes share the reading of a corpus.

Word ids are expensive to compute and cheap to send: each process encodes every n-th row and sends the ids to
the others. All processes have the same rows in the same order and make the same batches, however many they
are. With the sentences they exchange a checksum of the rows, because text from streams cannot be compared
beforehand.

Each process reads and shuffles all lines, and pads all batches. For 42,000 pairs of Europarl (28 words, split
by SentencePiece), reading and shuffling took 0.2 s of processor time, padding 0.2 s, encoding 0.9 s, and
sending 0.2 s.

Ids are sent when training needs the next ones, by the thread that also computes updates, at the same point in
all processes: threads that start collective operations in different orders wait for each other forever, and a
connection besides JAX's would need its own addresses and ports.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from nmt.text.order import Numbered
from nmt.text.parallel import CorpusError, Row
from nmt.text.sentences import REASONS, Sentence, SentenceReader

ROWS = 1 << 12
"""How many rows are exchanged at a time."""
_ABSENT = -1
_IDENTITY = 2
"""How many numbers identify the rows of a chunk."""

Reading = tuple[Row, Sentence]
"""A row and its sentence."""
Chunk = tuple[list[Numbered], np.ndarray]
"""Rows; and, as numbers, what identifies them and the sentences of this process's share of them."""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one process, and how it gets the shares of the others.

    ``own`` may be iterated in a thread, ahead of training. ``all`` waits for the other processes.

    index: the number of this process, from 0. count: how many there are. exchange: takes an int32 ``[n]`` of
    this process and returns the arrays of all, in order; ``n`` may differ.
    """

    index: int
    count: int
    exchange: Callable[[np.ndarray], Sequence[np.ndarray]]

    def own(self, reader: SentenceReader, rows: Iterable[Numbered], epoch: int) -> Iterator[Chunk]:
        """The rows in chunks, with the sentences of this process; the last chunk is smaller, maybe empty."""
        remaining, goes_on = iter(rows), True
        while goes_on:
            some = list(islice(remaining, ROWS))
            goes_on = len(some) == ROWS
            own = [reader.read(number, row, epoch) for number, row in some[self.index :: self.count]]
            yield some, np.concatenate([_identity(some), to_numbers(own)])

    def all(self, chunks: Iterable[Chunk]) -> Iterator[Reading]:
        """The rows in order, with their sentences. CorpusError in all processes if their rows differ."""
        for rows, own in chunks:
            each = self.exchange(own)
            _require_same([numbers[:_IDENTITY] for numbers in each])
            shares = [
                from_numbers(numbers[_IDENTITY:], [line for line, _ in rows[index :: self.count]])
                for index, numbers in enumerate(each)
            ]
            for place, (_, row) in enumerate(rows):
                index = place % self.count
                yield row, shares[index][place // self.count]


def _identity(rows: Sequence[Numbered]) -> np.ndarray:
    """How many rows these are, and their CRC-32."""
    checksum = zlib.crc32(b"\n".join(chain.from_iterable(row for _, row in rows)))
    return np.array([len(rows), checksum], np.uint32).view(np.int32)


def _require_same(identities: Sequence[np.ndarray]) -> None:
    first, *_ = counts = [int(count) for count, _ in identities]
    for index, identity in enumerate(identities):
        if tuple(identity) != tuple(identities[0]):
            numbers = f" ({counts[index]}, the first one {first})" if counts[index] != first else ""
            raise CorpusError(
                f"process {index} read other lines than the first one{numbers}: processes that train "
                "together need the same texts, also on standard input; mpirun gives that to the first only"
            )


def to_numbers(sentences: Sequence[Sentence]) -> np.ndarray:
    """The sentences as one int32 array, without the numbers of their lines; weights in 32 bits.

    First comes the length of the sizes. Then come the sizes of each sentence: the reason why it is left out,
    how many links and weights it has (-1 for None), the number of streams, and the length of each. The values
    of all sentences follow.
    """
    sizes: list[int] = []
    values: list[Sequence[int] | np.ndarray] = []
    for sentence in sentences:
        links, weights, sequences = sentence.alignment, sentence.weights, sentence.sequences
        sizes += (
            REASONS.index(sentence.problem),
            _ABSENT if links is None else len(links),
            _ABSENT if weights is None else len(weights),
            len(sequences),
            *map(len, sequences),
        )
        values += sequences
        values.append(tuple(chain.from_iterable(links or ())))
        if weights:
            values.append(np.array(weights, np.float32).view(np.int32))
    return np.fromiter(chain([len(sizes)], sizes, *values), np.int32)


def from_numbers(numbers: np.ndarray, lines: Sequence[int]) -> list[Sentence]:
    """The sentences that ``to_numbers`` wrote, of these ``lines``; their sequences are int32 arrays."""
    place = 1 + int(numbers[0])
    sizes = iter(numbers[1:place].tolist())

    def taken(count: int) -> np.ndarray:
        nonlocal place
        place += count
        return numbers[place - count : place]

    found = []
    for line in lines:
        reason, links, weights, streams = islice(sizes, 4)
        sequences: Any = tuple([taken(length) for length in islice(sizes, streams)])
        alignment = own = None
        if links != _ABSENT:
            alignment = list(map(tuple, taken(2 * links).reshape(-1, 2).tolist()))
        if weights != _ABSENT:
            own = taken(weights).view(np.float32).tolist()
        found.append(Sentence(line, sequences, REASONS[reason], alignment, own))
    return found
