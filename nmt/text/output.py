"""Marian's text formats for translations and scores, byte for byte, and the order of lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from nmt.search.results import Hypothesis
from nmt.text.alignment import alignment_field

Item = TypeVar("Item")


def significant(value: float) -> str:
    """Six significant digits, as a C++ stream prints a float: ``-71.3033``, ``-1.5e-05``."""
    return f"{value:.6g}"


def word_scores_field(scores: Sequence[float]) -> str:
    """``WordScores= -0.77547 -0.35450``: five decimals each."""
    return "WordScores=" + "".join(f" {score:.5f}" for score in scores)


def best_line(
    text: str,
    hypothesis: Hypothesis,
    *,
    alignment: str | float | None = None,
    word_scores: bool = False,
) -> str:
    """What ``mgraph decode`` prints of a line: ``text[ ||| 0-0 1-1][ ||| WordScores= ...]``.

    alignment: how to print the alignment, see ``read_alignment``; None not to.
    """
    return " ||| ".join([text, *_details(hypothesis, alignment, word_scores)])


def n_best_line(
    line: int,
    text: str,
    hypothesis: Hypothesis,
    *,
    alignment: str | float | None = None,
    word_scores: bool = False,
) -> str:
    """One entry of an n-best list: ``3 ||| text ||| 0-0 ||| WordScores= ... ||| F0= v F1= v ||| score``.

    line: the number of the input line, from 0. alignment: as in ``best_line``.
    F0, F1, ...: the unweighted score by each model; the last field is the normalized score.
    """
    features = " ".join(f"F{i}= {significant(score)}" for i, score in enumerate(hypothesis.scorer_scores))
    details = _details(hypothesis, alignment, word_scores)
    return " ||| ".join([str(line), text, *details, features, significant(hypothesis.score)])


def _details(hypothesis: Hypothesis, alignment: str | float | None, word_scores: bool) -> Iterator[str]:
    """The fields that options ask for."""
    if alignment is not None:
        yield alignment_field(alignment, hypothesis.alignment or ())
    if word_scores:
        yield word_scores_field(hypothesis.word_scores)


def score_line(score: float, fields: Sequence[str] = ()) -> str:
    """What ``mgraph score`` prints of a pair: ``-21.095358[ ||| 0-0 1-1][ ||| WordScores= ...]``."""
    return " ||| ".join([f"{score:.6f}", *fields])


class InOrder(Generic[Item]):
    """Items that come numbered in any order, handed on in the order of their numbers."""

    def __init__(self) -> None:
        self._waiting: dict[int, Item] = {}
        self._next = 0

    def add(self, number: int, item: Item) -> None:
        """Keep an item until it is its turn; numbers count from 0 and come once each."""
        self._waiting[number] = item

    def take(self) -> Iterator[Item]:
        """The items whose turn it is by now."""
        while self._next in self._waiting:
            yield self._waiting.pop(self._next)
            self._next += 1
