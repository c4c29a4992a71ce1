"""Log-probabilities of translations that are given."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph import Plan, compiled
from nmt.models import Model, Source
from nmt.text.batches import pad
from nmt.text.shapes import batch_bucket, length_bucket

Streams = Sequence[Sequence[int]]
"""The ids of a sentence in every source stream, then those of its translation."""

MOST_LOGITS = 1 << 27
"""Logits computed at once, at 4 bytes each; more sentences are scored in parts."""


class Scored(NamedTuple):
    """A translation under a model; scores are natural logarithms."""

    log_prob: float
    """The sum over the words."""
    word_scores: np.ndarray
    """Of each target word, float32 ``(words,)``."""
    attention: np.ndarray | None
    """To the words of the first source, float32 ``(words, source words)``; None if it was not asked for, or
    the model has none."""


@dataclass(frozen=True)
class ScoringPlan(Plan):
    """What ``Model.scorer`` computes, for sentences padded to these lengths."""

    model: Model
    batch: int
    lengths: tuple[int, ...]
    trg_length: int
    attention: bool

    @property
    def key(self) -> Hashable:
        return self.model.key, self.batch, self.lengths, self.trg_length, self.attention

    def __str__(self) -> str:
        lengths = " and ".join(map(str, self.lengths)) or "no"
        return f"scoring of {self.batch} sentences, {lengths} to {self.trg_length} words"

    def __call__(self, params: Any, sources: Sequence[Source], target: Source) -> Any:
        shapes = self.batch, self.lengths, self.trg_length
        scorer = self.model.scorer(*shapes, attention=self.attention, derivatives="jax")
        return scorer(params, sources, target)


def score(model: Model, samples: Sequence[Streams]) -> list[tuple[float, np.ndarray]]:
    """For each sentence the log-probability of its target ids given its source ids.

    ids: ``</s>`` included in every stream, at least one in each. The result is the sum over the target words
    and, float32 ``(words,)``, the natural logarithm of the probability of each. Sentences are padded to
    ``length_bucket``; neither that nor the other sentences change a score.
    """
    return [found[:2] for found in score_streams(model, samples)]


def score_streams(model: Model, samples: Sequence[Streams], *, attention: bool = False) -> list[Scored]:
    """As ``score``, and with ``attention`` that of each target word to the words of the first source."""
    if not samples:
        return []
    for number, streams in enumerate(samples):
        if len(streams) != model.sources + 1:
            raise ValueError(f"sentence {number} has {len(streams)} streams, expected {model.sources + 1}")
        if not all(map(len, streams)):
            raise ValueError(f"sentence {number} has no ids in one stream, not even </s>")
    longest = length_bucket(max(len(streams[-1]) for streams in samples))
    at_once = max(1, MOST_LOGITS // (longest * model.dim_vocabs[-1]))
    while batch_bucket(at_once) > at_once:
        at_once -= 1
    scores: list[Scored] = []
    for first in range(0, len(samples), at_once):
        scores += _score_padded(model, samples[first : first + at_once], attention and model.attends)
    return scores


def _score_padded(model: Model, samples: Sequence[Streams], attention: bool) -> list[Scored]:
    padded = pad(list(zip(*samples, strict=True)))
    *sources, target = map(Source, padded.ids, padded.masks)
    batch, *lengths, trg_length = padded.shape
    found = compiled(ScoringPlan(model, batch, tuple(lengths), trg_length, attention))(
        model.params, sources, target
    )
    log_probs, weights = map(np.asarray, found) if isinstance(found, tuple) else (np.asarray(found), None)
    scores = []
    for row, streams in enumerate(samples):
        words = log_probs[row, : len(streams[-1])]
        aligned = None if weights is None else weights[row, : len(words), : len(streams[0])]
        scores.append(Scored(float(words.sum(dtype=np.float64)), words, aligned))
    return scores
