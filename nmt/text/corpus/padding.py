"""Sentences as the arrays that a program takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.text.corpus.batch import TrainingBatch
from nmt.text.corpus.sentence import Links, Sentence
from nmt.text.corpus.shapes import Shape


def padded(sentences: Sequence[Sentence], shape: Shape) -> TrainingBatch:
    """The batch of ``sentences``, padded to ``shape``: rows, then the length of each stream."""
    rows, *lengths = shape
    real = len(sentences)
    ids, masks = [], []
    for stream, length in enumerate(lengths):
        words = [sentence.streams[stream] for sentence in sentences]
        table = np.zeros((rows, length), np.int32)
        mask = np.zeros((rows, length), np.float32)
        inside = np.arange(length) < np.fromiter(map(len, words), np.int64, real)[:, None]
        table[:real][inside] = np.concatenate(words)
        mask[:real][inside] = 1
        table[real:], mask[real:] = table[0], mask[0]
        ids.append(table)
        masks.append(mask)
    masks[-1][real:] = 0
    return TrainingBatch(
        tuple(ids),
        tuple(masks),
        real,
        _weights(sentences, rows, lengths[-1]),
        _alignment(sentences, rows, lengths),
    )


def _weights(sentences: Sequence[Sentence], rows: int, length: int) -> np.ndarray | None:
    """The weights of target words, 1 where there is no word."""
    if sentences[0].weights is None:
        return None
    table = np.ones((rows, length), np.float32)
    for row, sentence in enumerate(sentences):
        weights = sentence.weights or []
        table[row, : len(weights)] = weights
    return table


def _alignment(sentences: Sequence[Sentence], rows: int, lengths: Sequence[int]) -> np.ndarray | None:
    """For each target word equal shares for the source words that it is linked to; they sum to 1, or 0."""
    if sentences[0].alignment is None:
        return None
    table = np.zeros((rows, lengths[-1], lengths[0]), np.float32)
    for row, sentence in enumerate(sentences):
        _add_links(table[row], sentence.alignment or [])
    return table


def _add_links(table: np.ndarray, links: Links) -> None:
    if links:
        source, target = np.array(links).T
        shares = np.float32(1) / np.maximum(np.bincount(target), 1).astype(np.float32)
        np.add.at(table, (target, source), shares[target])
