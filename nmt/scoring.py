"""Log-probabilities of translations that are given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgraph.running.programs import PROGRAMS
from nmt.batches import batch_bucket, length_bucket, pad
from nmt.models import Model, Source

Pair = tuple[Sequence[int], Sequence[int]]

MOST_LOGITS = 1 << 27
"""Logits computed at once, at 4 bytes each; more pairs are scored in parts."""


def score(model: Model, pairs: Sequence[Pair]) -> list[tuple[float, np.ndarray]]:
    """For each pair of source and target ids the log-probability of the target given the source.

    ids: ``</s>`` included on both sides, at least one on each. The result is the sum over the target words
    and, float32 ``(words,)``, the natural logarithm of the probability of each. Pairs are padded to
    ``length_bucket``; neither that nor the other pairs change a score.
    """
    if not pairs:
        return []
    for number, (source, target) in enumerate(pairs):
        if not len(source) or not len(target):
            raise ValueError(f"pair {number} has no ids on one side, not even </s>")
    longest = length_bucket(max(len(target) for _, target in pairs))
    at_once = max(1, MOST_LOGITS // (longest * model.dim_vocabs[1]))
    while batch_bucket(at_once) > at_once:
        at_once -= 1
    scores: list[tuple[float, np.ndarray]] = []
    for first in range(0, len(pairs), at_once):
        scores += _score_padded(model, pairs[first : first + at_once])
    return scores


def _score_padded(model: Model, pairs: Sequence[Pair]) -> list[tuple[float, np.ndarray]]:
    source = pad([source for source, _ in pairs])
    target = pad([target for _, target in pairs])
    scorer = model.scorer(len(source.ids), (source.ids.shape[1],), target.ids.shape[1])
    arguments = (model.params, [Source(source.ids, source.mask)], Source(target.ids, target.mask))
    key = ("score", model.key, source.ids.shape, target.ids.shape)
    label = f"scoring of {len(source.ids)} pairs, {source.ids.shape[1]} to {target.ids.shape[1]} words"
    log_probs = np.asarray(PROGRAMS.get(key, label, scorer, arguments)(*arguments))
    words = [row[: len(target)] for row, (_, target) in zip(log_probs, pairs, strict=False)]
    return [(float(row.sum(dtype=np.float64)), row) for row in words]
