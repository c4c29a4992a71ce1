"""How the sentences of a training batch are laid out in rows, and how many positions that takes.

A shape is a tuple: the rows of a batch, then the longest length of each stream; with packed sentences, then
also the packed rows of each stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nmt.text.batches import Batch, pad_for_training
from nmt.text.packing import WIDTH, rows_for, tiered_length, whole_rows, whole_width
from nmt.text.sentences import Sentence
from nmt.text.shapes import Shape

ATTENTION = 8
"""In packed batches, this many positions laid out only for attention cost as much as one in a product."""


class PaddedLayout:
    """Each sentence is a row, padded to the longest."""

    packs = False

    def size(self, sentences: Sequence[Sentence]) -> Shape:
        """The smallest shape that holds these sentences."""
        lengths = (map(len, sentence.sequences) for sentence in sentences)
        return (len(sentences), *map(max, zip(*lengths, strict=True)))

    def positions(self, shape: Shape) -> int:
        """How many positions, words or padding, matrix products multiply."""
        return shape[0] * sum(shape[1:])

    def costs(self, shapes: Any) -> np.ndarray:
        """The cost, in positions, of batches of shapes ``(..., sizes)``."""
        table = np.asarray(shapes)
        return np.asarray(table[..., 0] * table[..., 1:].sum(-1))

    def lengths(self, shape: Shape) -> Shape:
        """The length of each stream."""
        return shape[1:]

    def words(self, shape: Shape) -> Shape:
        """The packed rows of each stream; empty unless sentences are packed."""
        return ()

    def full(self, laid_out: Shape) -> Shape:
        """The shape for these rows and lengths if every sentence has the full length."""
        return laid_out

    def batch(self, sentences: Sequence[Sentence], shape: Shape) -> Batch:
        """A batch of this shape."""
        return pad_for_training(sentences, shape)


class PackedLayout(PaddedLayout):
    """Words are packed one after another; where attention needs it, each sentence is laid out as a row.

    parts: into how many parts a batch is divided, to compute them on several devices or one after another.
    Each part has its own rows, for every ``parts``-th sentence.
    """

    packs = True

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts

    def size(self, sentences: Sequence[Sentence]) -> Shape:
        lengths = np.array([[*map(len, sentence.sequences)] for sentence in sentences])
        words = [lengths[first :: self.parts].sum(0) for first in range(self.parts)]
        even = -(-lengths.max(0) // 2) * 2  # as attention on GPUs requires
        return (len(sentences), *even.tolist(), *map(rows_for, np.max(words, 0).tolist()))

    def positions(self, shape: Shape) -> int:
        return self.parts * WIDTH * sum(self.words(shape))

    def costs(self, shapes: Any) -> np.ndarray:
        table = np.asarray(shapes)
        laid_out = table.shape[-1] // 2 + 1
        words = self.parts * WIDTH * table[..., laid_out:].sum(-1)
        return np.asarray(words + super().costs(table[..., :laid_out]) // ATTENTION)

    def lengths(self, shape: Shape) -> Shape:
        return shape[1 : len(shape) // 2 + 1]

    def words(self, shape: Shape) -> Shape:
        return shape[len(shape) // 2 + 1 :]

    def full(self, laid_out: Shape) -> Shape:
        rows, *lengths = laid_out
        return (*laid_out, *(rows_for(-(-rows // self.parts) * length) for length in lengths))

    def batch(self, sentences: Sequence[Sentence], shape: Shape) -> Batch:
        return pad_for_training(sentences, (shape[0], *self.lengths(shape)), self.words(shape))


class RecurrentLayout(PackedLayout):
    """The layout for recurrent models.

    Sources are packed in rows that hold whole sentences, and laid out for attention, the first source in
    ``tiers``. Targets are packed for the output layer and the loss, and laid out for the recurrences, which
    multiply padding too.
    """

    def size(self, sentences: Sequence[Sentence]) -> Shape:
        count, *longest = PADDED.size(sentences)
        lengths = [[*map(len, sentence.sequences)] for sentence in sentences]
        parts = [[*zip(*lengths[first :: self.parts], strict=True)] for first in range(self.parts)]
        parts = [streams for streams in parts if streams]
        if len(longest) > 1:
            longest[0] = max(tiered_length(streams[0]) for streams in parts)
        widths = [*map(whole_width, longest)]
        rows = [
            [
                *(whole_rows(stream, width)[-1] for stream, width in zip(streams[:-1], widths, strict=False)),
                rows_for(sum(streams[-1])),
            ]
            for streams in parts
        ]
        return (count, *longest, *map(max, zip(*rows, strict=True)))

    def positions(self, shape: Shape) -> int:
        table = np.asarray(shape)
        return int(self._of_sources(table) + self._laid_out(table))

    def costs(self, shapes: Any) -> np.ndarray:
        table = np.asarray(shapes)
        attended = table[..., 0] * table[..., 1 : table.shape[-1] // 2].sum(-1)
        # Recurrences and output layer have equal weights: which costs more depends on the vocabulary.
        target = (self._laid_out(table) + self.parts * WIDTH * table[..., -1]) // 2
        return np.asarray(self._of_sources(table) + target + attended // ATTENTION)

    def full(self, laid_out: Shape) -> Shape:
        rows, *lengths = laid_out
        own = -(-rows // self.parts)
        return (*laid_out, *(own for _ in lengths[:-1]), rows_for(own * lengths[-1]))

    def _of_sources(self, table: np.ndarray) -> Any:
        target = table.shape[-1] // 2
        widths = whole_width(table[..., 1:target])
        return self.parts * (widths * table[..., target + 1 : -1]).sum(-1)

    def _laid_out(self, table: np.ndarray) -> Any:
        """The target positions that recurrences multiply."""
        return table[..., 0] * table[..., table.shape[-1] // 2]


PADDED = PaddedLayout()
