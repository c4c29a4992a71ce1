"""A batch of sentence pairs as training takes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Sentences of all streams, padded to a shape for which a program may be there.

    ids, masks: of each source stream, then of the target: int32 and float32 ``[rows, length]``. Padding is 0
        in both. Rows from ``sentences`` on are padding: in the sources they repeat row 0, so that nothing in
        them is infinite; in the target they do so too, but their mask is 0, and it is the target's mask that
        counts.
    sentences: how many rows are real.
    weights: float32 ``[rows, target length]``, the weight of each target word (``--data-weighting``); None
        for 1.
    alignment: float32 ``[rows, target length, source length]``, the attention that is asked for
        (``--guided-alignment``); None if none is.
    """

    ids: tuple[np.ndarray, ...]
    masks: tuple[np.ndarray, ...]
    sentences: int
    weights: np.ndarray | None = None
    alignment: np.ndarray | None = None

    @property
    def words(self) -> int:
        """The number of target words, ``</s>`` included; Marian's ``wordsTrg``."""
        return int(self.masks[-1].sum())

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, then the padded length of each stream; what a program is compiled for."""
        return (len(self.ids[0]), *(ids.shape[1] for ids in self.ids))

    def split(self, parts: int) -> list[TrainingBatch]:
        """At most so many parts of nearly equal size, in order; as many rows in each, whatever batch of this
        shape is split, so that they run through one program."""
        rows = -(-len(self.ids[0]) // parts)
        return [self._part(at, min(rows, self.sentences - at), rows) for at in range(0, self.sentences, rows)]

    def shortened(self, sentences: int) -> TrainingBatch:
        """The first so many sentences; all of them, if there are no more."""
        return self if sentences >= self.sentences else self._part(0, sentences, sentences)

    def with_rows(self, rows: int) -> TrainingBatch:
        """The same sentences in so many rows, of which those that are too many are padding."""
        return self if rows == len(self.ids[0]) else self._part(0, self.sentences, rows)

    def _part(self, start: int, sentences: int, rows: int) -> TrainingBatch:
        chosen = np.full(rows, start)
        chosen[:sentences] = np.arange(start, start + sentences)
        real = (np.arange(rows) < sentences).astype(np.float32)[:, None]
        masks = [mask[chosen] for mask in self.masks]
        masks[-1] *= real
        return TrainingBatch(
            tuple(ids[chosen] for ids in self.ids),
            tuple(masks),
            sentences,
            None if self.weights is None else self.weights[chosen],
            None if self.alignment is None else self.alignment[chosen],
        )
