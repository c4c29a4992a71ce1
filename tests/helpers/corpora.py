"""The corpus of Marian's batch traces, and what its batches hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.settings import TRAIN
from nmt.text.batches import Batch
from nmt.text.corpus import Corpus
from tests.helpers import places

DATA = places.DATA / "corpus"
TEXTS = (str(DATA / "source.txt"), str(DATA / "target.txt"))
SEED = 7
GIVEN = {"model": "m.npz", "train_sets": TEXTS, "mini_batch": 8, "maxi_batch": 8, "shuffle": "none"}
DEFAULTS = TRAIN.from_python(GIVEN)


def epoch(corpus: Corpus) -> list[Batch]:
    """All batches of the next epoch."""
    corpus.begin_epoch()
    return list(corpus)


def pairs(batch: Batch) -> list[tuple[tuple[int, ...], ...]]:
    """The real sentences of a batch, as word ids of each stream."""
    return [
        tuple(
            tuple(ids[row][mask[row] > 0].tolist()) for ids, mask in zip(batch.ids, batch.masks, strict=True)
        )
        for row in range(batch.sentences)
    ]


def same(one: Sequence[Batch], other: Sequence[Batch]) -> bool:
    """Whether batches are the same, padding included."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a.sentences != b.sentences or a.shape != b.shape:
            return False
        if not all(map(np.array_equal, (*a.ids, *a.masks), (*b.ids, *b.masks))):
            return False
    return True
