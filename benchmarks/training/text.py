"""A made-up parallel text to train on: its lengths are Europarl's, its words mean nothing."""

from __future__ import annotations

import random
from pathlib import Path

from nmt.text.vocabs.creation import word_vocab

PAIRS = 3_000
WORDS = 2_000
LONGEST = 96
LOG_LENGTH = 3.18, 0.61
"""Mean and deviation of the logarithm of a source's length, for Europarl split into subwords."""
LOG_RATIO = 0.04, 0.19
"""The same for the target's length divided by the source's."""


def write_text(
    folder: Path, pairs: int = PAIRS, words: int = WORDS
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Write both sides and their vocabularies of this many words, unless they exist; returns the paths."""
    texts = folder / "text.src", folder / "text.trg"
    vocabs = folder / "vocab.src.yml", folder / "vocab.trg.yml"
    if not all(path.exists() for path in (*texts, *vocabs)):
        dice = random.Random(1)
        lengths = [_lengths(dice) for _ in range(pairs)]
        for side, (text, vocab) in enumerate(zip(texts, vocabs, strict=True)):
            known = [f"{'st'[side]}{number}" for number in range(words)]
            weights = [1 / (rank + 10) for rank in range(words)]
            text.write_text(
                "".join(f"{' '.join(dice.choices(known, weights, k=pair[side]))}\n" for pair in lengths)
            )
            vocab.write_bytes(word_vocab(word.encode() for word in known))
    return (str(texts[0]), str(texts[1])), (str(vocabs[0]), str(vocabs[1]))


def _lengths(dice: random.Random) -> tuple[int, int]:
    source = dice.lognormvariate(*LOG_LENGTH)
    target = source * dice.lognormvariate(*LOG_RATIO)
    return _whole(source), _whole(target)


def _whole(length: float) -> int:
    return min(LONGEST, max(1, round(length)))
