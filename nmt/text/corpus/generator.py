"""Marian's generator of random orders: C++'s mt19937 and the shuffles that it makes with it."""

from __future__ import annotations

import array
from collections.abc import MutableSequence
from typing import Any

import numpy as np

from nmt.text.corpus.errors import CorpusError

WORDS = 624
LARGEST = 0xFFFFFFFF  # what mt19937 draws at most
CHUNK = 1 << 16


class MersenneTwister:
    """C++'s ``std::mt19937`` with the ``std::shuffle`` of the C++ library that Marian is built with.

    From the same seed the data is visited in the order in which Marian visits it (Matsumoto and Nishimura
    1998 for the generator; the shuffle is Fisher's and Yates's, of two elements with each number while there
    are fewer than 65536).

    seed: as in Marian its lowest 32 bits count.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.MT19937(0)
        state: Any = np.random.RandomState(seed & LARGEST).get_state(legacy=False)
        self._bits.state = state

    @property
    def text(self) -> str:
        """The state as C++ streams write it: 624 words and the place among them, in decimal."""
        state: Any = self._bits.state["state"]
        return " ".join(map(str, [*state["key"].tolist(), int(state["pos"])]))

    def restore(self, text: str) -> None:
        """Go to a state that ``text`` gave, ours or Marian's; CorpusError if it is none."""
        fields = text.split()
        numbers = [int(field) for field in fields if field.isascii() and field.isdigit()]
        if not len(fields) == len(numbers) == WORDS + 1 or max(numbers) > LARGEST or numbers[-1] > WORDS:
            raise CorpusError(
                f"the state of a generator is {WORDS + 1} numbers of 32 bits (mt19937 as C++ writes it), "
                f"got {len(fields)} fields: '{text[:40]}'"
            )
        key = np.array(numbers[:-1], np.uint32)
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": numbers[-1]}}

    def below(self, number: int) -> int:
        """A number from 0 to ``number - 1``; ``number`` is at most 2^32 - 1."""
        scale = LARGEST // number
        while (drawn := int(self._bits.random_raw())) >= number * scale:
            pass
        return drawn // scale

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Put ``items`` into a random order, in place."""
        count = len(items)
        if count > LARGEST // max(count, 1):
            self._shuffle_many(items)
            return
        first = 1
        if count and count % 2 == 0:
            other = self.below(2)
            items[1], items[other] = items[other], items[1]
            first = 2
        for i in range(first, count, 2):
            one, other = divmod(self.below((i + 1) * (i + 2)), i + 2)
            items[i], items[one] = items[one], items[i]
            items[i + 1], items[other] = items[other], items[i + 1]

    def order(self, count: int) -> np.ndarray:
        """The numbers from 0 to ``count - 1`` in a random order: uint32 ``[count]``."""
        numbers = array.array("I", range(count))
        self.shuffle(numbers)
        return np.frombuffer(numbers, np.uint32) if count else np.zeros(0, np.uint32)

    def _shuffle_many(self, items: MutableSequence[Any]) -> None:
        """The same for many items: a number each, drawn many at a time."""
        first = 1
        while first < len(items):
            ends = np.arange(first + 1, min(first + CHUNK, len(items)) + 1, dtype=np.uint64)
            for i, other in enumerate(self._below_each(ends).tolist(), first):
                items[i], items[other] = items[other], items[i]
            first += len(ends)

    def _below_each(self, ends: np.ndarray) -> np.ndarray:
        """``below`` of each of ``ends``, in order."""
        scales = np.uint64(LARGEST) // ends
        found = np.empty(len(ends), np.uint64)
        done, drawn = 0, np.zeros(0, np.uint64)
        while done < len(ends):
            if not len(drawn):
                drawn = self._bits.random_raw(len(ends) - done)
            rest = slice(done, done + len(drawn))
            refused = np.flatnonzero(drawn >= ends[rest] * scales[rest])
            good = int(refused[0]) if len(refused) else len(drawn)
            found[done : done + good] = drawn[:good] // scales[done : done + good]
            done += good
            drawn = drawn[good + 1 :]
        return found
