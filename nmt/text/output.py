"""Marian's text formats for scores, byte for byte, and the order of lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


def significant(value: float) -> str:
    """Six significant digits, as a C++ stream prints a float: ``-71.3033``, ``-1.5e-05``."""
    return f"{value:.6g}"


def word_scores_field(scores: Sequence[float]) -> str:
    """``WordScores= -0.77547 -0.35450``: five decimals each."""
    return "WordScores=" + "".join(f" {score:.5f}" for score in scores)


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
