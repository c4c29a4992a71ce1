"""Our output for the test lines, all in one batch: the files that ``marian.DECODED`` and ``SCORED`` name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nmt import Scorer, Translator

LISTS = {"beam_size": 4, "normalize": 0.6, "n_best": True}
DECODING: Mapping[str, Mapping[str, Any]] = {
    "beam1.txt": {"beam_size": 1},
    "beam4.nbest": {**LISTS, "word_scores": True},
    "soft.nbest": {**LISTS, "word_scores": True, "alignment": "soft"},
    "hard.nbest": {**LISTS, "alignment": "hard"},
}
SCORING: Mapping[str, Mapping[str, Any]] = {
    "score.txt": {"word_scores": True},
    "score-soft.txt": {"word_scores": True, "alignment": "soft"},
}
BATCH = 64


def decode(
    name: str, models: Sequence[str], vocabs: Sequence[str], texts: list[list[str]], **options: Any
) -> list[str]:
    """The lines of one file of ``marian.DECODED``."""
    translator = Translator(models, vocabs, mini_batch=BATCH, **options, **DECODING[name])
    return "\n".join(translator.translate(*texts)).split("\n")


def score(name: str, model: str, vocabs: Sequence[str], texts: list[list[str]]) -> list[str]:
    """The lines of one file of ``marian.SCORED``."""
    scorer = Scorer(model, vocabs, mini_batch=BATCH, **SCORING[name])
    return [scorer.format(result) for result in scorer.scores(*texts)]
