"""A text for models that copy: its lengths are Europarl's, its words mean nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.training.text import LOG_LENGTH, LONGEST
from nmt.search.shortlist import Lexicon, write_binary
from nmt.text.vocabs.creation import word_vocab

EOS, UNK, STOP = 0, 1, 2
"""Ids: ``STOP`` is the word of a source that ends its translation."""
SPECIAL = 3
LOG_RATIO = -0.2, 0.19
"""Mean and deviation of the logarithm of the translation's length divided by the source's; at most 0."""
FIRST, BEST = 50, 50
"""Candidates in the shortlist: for every sentence, and for each of its words."""
_ZIPF = 10


def word(number: int) -> str:
    """The word of an id."""
    return "stop" if number == STOP else f"w{number}"


def write_vocab(path: Path, words: int) -> None:
    """Write a vocabulary of ``words`` ids, in YAML."""
    path.write_bytes(word_vocab(word(number).encode() for number in range(STOP, words)))


def made_lines(words: int, seed: int = 1) -> Iterator[str]:
    """Endless lines, from a vocabulary of ``words`` ids.

    Most have ``STOP`` somewhere in their second half: their translations are shorter than the lines.
    """
    dice = random.Random(seed)
    ids = range(SPECIAL, words)
    weights = np.cumsum([1 / (rank + _ZIPF) for rank in range(len(ids))]).tolist()
    while True:
        length = min(LONGEST, max(1, round(dice.lognormvariate(*LOG_LENGTH))))
        line = list(map(word, dice.choices(ids, cum_weights=weights, k=length)))
        ratio = math.exp(min(0.0, dice.gauss(*LOG_RATIO)))
        end = max(1, round(length * ratio))
        if end < length:
            line[end] = word(STOP)
        yield " ".join(line)


def copied(line: str) -> str:
    """The translation of a line by a model that copies."""
    before, _, _ = f" {line} ".partition(f" {word(STOP)} ")
    return before.strip()


def write_shortlist(path: Path, words: int, seed: int = 1) -> None:
    """Write a binary shortlist: for each word itself and other words, ``BEST`` in all."""
    dice = np.random.default_rng(seed)
    best = min(BEST, words)
    others = dice.integers(0, words, (words, best))
    others[:, 0] = np.arange(words)
    rows = [np.unique(row) for row in others]
    offsets = np.cumsum([0, *map(len, rows)])
    lexicon = Lexicon(offsets.astype(np.int64), np.concatenate(rows).astype(np.int32), FIRST, best)
    write_binary(path, lexicon)
