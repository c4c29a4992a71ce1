"""Marian's maxi-batches: sentences are collected, ordered by their lengths, and cut into batches."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.settings import OptionError
from nmt.text.corpus.sentence import Sentence
from nmt.text.corpus.shapes import Sizes

SORTS = ("trg", "src", "none")


class _Queued(int):
    """A place in the order of a maxi-batch, and the sentence that has it; equal places are equal."""

    sentence: Sentence


@dataclass(frozen=True)
class Batching:
    """How sentences become batches.

    mini_batch: sentences in a batch. mini_batch_words: if not 0, a batch is full as soon as its first source
        has more words than this, instead. sizes: if there, a batch is full when no more would fit, instead.
    maxi_batch: mini-batches' worth of sentences that are read ahead.
    maxi_batch_sort: in which order they are taken: ``trg`` and ``src`` by the lengths of the target or of the
        first source, then of the other streams, longest first; ``none`` from the last line to the first.

    Sentences that are equally long come in the order in which Marian's priority queue gives them, so that
    the batches are Marian's. The last batch of a maxi-batch may be smaller than the others.
    """

    mini_batch: int = 64
    mini_batch_words: int = 0
    maxi_batch: int = 100
    maxi_batch_sort: str = "trg"
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        for option in ("mini_batch", "maxi_batch"):
            if getattr(self, option) < 1:
                raise OptionError(f"--{option.replace('_', '-')} is at least 1, got {getattr(self, option)}")
        if self.mini_batch_words < 0:
            raise OptionError(f"--mini-batch-words is at least 0, got {self.mini_batch_words}")
        if self.maxi_batch_sort not in SORTS:
            raise OptionError(f"--maxi-batch-sort is one of {', '.join(SORTS)}, got '{self.maxi_batch_sort}'")

    @classmethod
    def from_options(cls, values: Mapping[str, Any], sizes: Sizes | None = None) -> Batching:
        """Batches as Marian's options say."""
        return cls(
            values["mini_batch"],
            values["mini_batch_words"],
            values["maxi_batch"],
            values["maxi_batch_sort"],
            sizes,
        )

    @property
    def capacity(self) -> int:
        """Sentences that are read ahead."""
        return self.mini_batch * self.maxi_batch

    def cut(self, sentences: Sequence[Sentence]) -> list[list[Sentence]]:
        """The batches of a maxi-batch."""
        # With the same comparisons heapq keeps its heap as the C++ library does: a priority queue of C++ has
        # the largest on top, heapq the smallest of the negated.
        queue: list[_Queued] = []
        for sentence in sentences:
            queued = _Queued(-self._rank(sentence))
            queued.sentence = sentence
            heapq.heappush(queue, queued)
        batches: list[list[Sentence]] = []
        while queue:
            batches.append(self._next(queue))
        return batches

    def _rank(self, sentence: Sentence) -> int:
        if self.maxi_batch_sort == "none":
            return sentence.number
        rank = 0
        for words in sentence.streams[:: 1 if self.maxi_batch_sort == "src" else -1]:
            rank = rank << 32 | len(words)
        return rank

    def _next(self, queue: list[_Queued]) -> list[Sentence]:
        """The next batch, taken from the queue."""
        if self.sizes is not None:
            return self._fitting(queue, self.sizes)
        batch: list[Sentence] = []
        words = 0
        while queue:
            sentence = heapq.heappop(queue).sentence
            batch.append(sentence)
            if not self.mini_batch_words:
                if len(batch) == self.mini_batch:
                    break
                continue
            words += len(sentence.streams[0])
            if words > self.mini_batch_words:
                break
        return batch

    def _fitting(self, queue: list[_Queued], sizes: Sizes) -> list[Sentence]:
        """As many sentences as fit; one that makes the batch too long for itself waits for the next."""
        batch: list[Sentence] = []
        lengths: tuple[int, ...] = ()
        while queue:
            queued = heapq.heappop(queue)
            streams = tuple(map(len, queued.sentence.streams))
            lengths = tuple(map(max, lengths, streams)) if lengths else streams
            most = max(1, sizes(lengths))
            if len(batch) + 1 > most:
                heapq.heappush(queue, queued)
                break
            batch.append(queued.sentence)
            if len(batch) == most:
                break
        return batch
