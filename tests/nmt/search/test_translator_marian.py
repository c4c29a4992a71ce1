"""What ``mgraph decode`` prints, compared with what Marian printed, for every option of the search."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nmt import Translator
from tests.helpers.marian_lines import read_lines
from tests.helpers.places import DATA, SHIPPED

pytestmark = pytest.mark.optimized

SEARCH, OPTIONS = DATA / "search", DATA / "options"
TRANSFORMER, S2S = SHIPPED / "model.npz", DATA / "s2s-numbers" / "model.npz"
PIECES = [SHIPPED / "vocab.spm"] * 2
SOURCE, TARGET = OPTIONS / "source.yml", OPTIONS / "target.yml"
LIST = {"n_best": True, "word_scores": True}
LEXICON = str(SEARCH / "lexicon.txt")
TOLERANCE = 1e-4


def numbers(*models: Path, prefixes: bool = False, **options: Any) -> tuple[Any, ...]:
    """A reference of models of number words."""
    inputs = ["input.en", *(["prefix.de"] if prefixes else [])]
    return models, PIECES, inputs, LIST | {"force_decode": prefixes} | options


def words(*models: str, inputs: tuple[str, ...] = ("words.txt",), **options: Any) -> tuple[Any, ...]:
    """A reference of models of a few words, whose files are in the same folder."""
    vocabs = [SOURCE, SOURCE, TARGET] if "second.txt" in inputs else [SOURCE, TARGET]
    paths = [SEARCH / f"{name}.npz" for name in models]
    return paths, vocabs, inputs, LIST | {"beam_size": 3} | options


REFERENCES: dict[str, tuple[Any, ...]] = {
    "transformer.soft.nbest": numbers(TRANSFORMER, beam_size=2, alignment="soft"),
    "transformer.threshold.nbest": numbers(TRANSFORMER, beam_size=2, alignment="0.2"),
    "transformer.prefix.txt": numbers(TRANSFORMER, beam_size=1, alignment=1, prefixes=True, n_best=False),
    "s2s.soft.nbest": numbers(S2S, beam_size=2, alignment="soft"),
    "s2s.threshold.nbest": numbers(S2S, beam_size=2, alignment=0.2),
    "s2s.shortlist.nbest": numbers(S2S, beam_size=3, shortlist=[LEXICON, 20, 5, 0.02]),
    "s2s.prefix.nbest": numbers(S2S, beam_size=3, prefixes=True),
    "right-left.nbest": words(
        "right-left", "right-left-transformer", alignment="soft", shortlist=[SEARCH / "words.lexicon", 3, 2]
    ),
    "right-left.prefix.nbest": words("right-left", inputs=("words.txt", "prefix.txt"), force_decode=True),
    "lm.nbest": words("left-right", "lm", weights=[1, 0.3]),
    "lm-alone.nbest": words("lm"),
    "skip-cost.nbest": words("left-right", skip_cost=True),
    "multi.nbest": words("multi", "left-right", inputs=("words.txt", "second.txt"), alignment="soft"),
}


def is_number(word: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", word) is not None


def near(found: str, printed: str) -> bool:
    """Whether two printed numbers differ by at most ``TOLERANCE``, or in the last of six digits."""
    difference = abs(float(found) - float(printed))
    return difference <= max(TOLERANCE, 2e-5 * abs(float(printed)))


def check_line(found: str, printed: str) -> None:
    """Assert the same text in the same fields; the last digits of numbers may differ."""
    pairs = [re.split("([ ,])", line) for line in (found, printed)]
    assert len(pairs[0]) == len(pairs[1]), (found, printed)
    for ours, theirs in zip(*pairs, strict=True):
        numeric = is_number(ours) and is_number(theirs)
        assert near(ours, theirs) if numeric else ours == theirs, (found, printed)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.sampled("s2s.shortlist.nbest", "right-left.prefix.nbest")
def test_prints_what_marian_prints(name: str) -> None:
    models, vocabs, inputs, options = REFERENCES[name]
    translator = Translator(list(map(str, models)), list(map(str, vocabs)), mini_batch=16, **options)
    texts = [(SEARCH / path).read_bytes().splitlines(keepends=True) for path in inputs]
    found = "\n".join(translator.translate(*texts)).split("\n")
    printed = read_lines(SEARCH / name)
    assert len(found) == len(printed)
    for ours, theirs in zip(found, printed, strict=True):
        check_line(ours, theirs)
