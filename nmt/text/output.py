"""Marian's text formats for scores and alignments, byte for byte, and output in input order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from mgraph.names import meant
from nmt.settings import OptionError

Item = TypeVar("Item")


def significant(value: float) -> str:
    """Six significant digits, as a C++ stream prints a float: ``-71.3033``, ``-1.5e-05``."""
    return f"{value:.6g}"


def word_scores_field(scores: Sequence[float]) -> str:
    """``WordScores= -0.77547 -0.35450``: five decimals each."""
    return "WordScores=" + "".join(f" {score:.5f}" for score in scores)


def score_line(score: float, fields: Sequence[str] = ()) -> str:
    """A line of ``mgraph score``: ``-21.095358[ ||| 0-0 1-1][ ||| WordScores= ...]``."""
    return " ||| ".join([f"{score:.6f}", *fields])


class InOrder(Generic[Item]):
    """Puts numbered items, added in any order, back into order.

    first: the lowest number.
    """

    def __init__(self, first: int = 0) -> None:
        self._waiting: dict[int, Item] = {}
        self._next = first

    def add(self, number: int, item: Item) -> None:
        """Add an item; each number, from ``first`` on, must be added once."""
        self._waiting[number] = item

    def take(self) -> Iterator[Item]:
        """The next items in order, up to the first that is missing."""
        while self._next in self._waiting:
            yield self._waiting.pop(self._next)
            self._next += 1


SOFT, HARD = "soft", "hard"


def read_alignment(value: str) -> str | float | None:
    """Parse ``--alignment``: ``soft``, a threshold above 0 (1 for ``hard`` and ``true``), or None if empty.

    OptionError for anything else.
    """
    if value in ("", SOFT):
        return value or None
    if value in (HARD, "true"):
        return 1.0
    try:
        threshold = float(value)
    except ValueError:
        threshold = -1.0
    if not threshold > 0:
        hint = meant(value, ("soft", "hard"))
        raise OptionError(f"--alignment must be soft, hard or a number above 0, got '{value}'{hint}")
    return threshold


def alignment_field(kind: str | float, attention: Sequence[Sequence[float]]) -> str:
    """The alignment as ``mgraph decode`` and ``mgraph score`` print it: links such as ``0-0 1-1``, or for
    ``soft`` the attention of each target word to all source words, such as ``0.98,0.02 0.1,0.9``.

    kind: from ``read_alignment``. attention: ``[target word][source word]``, ``</s>`` included.
    """
    if isinstance(kind, str):
        return " ".join(",".join(f"{weight:.6g}" for weight in row) for row in attention)
    return " ".join(f"{source}-{target}" for source, target in links(attention, kind))


def links(attention: Sequence[Sequence[float]], threshold: float = 1.0) -> list[tuple[int, int]]:
    """Linked pairs of source and target positions, sorted.

    A threshold of 1 links each target word to the source word with the most attention (the first in a tie);
    any other threshold, to all source words with float32 attention above it.
    """
    table = np.asarray(attention, np.float32)
    if not table.size:  # the line was not translated
        return []
    if threshold == 1.0:
        pairs = [(int(source), target) for target, source in enumerate(table.argmax(axis=1))]
    else:
        targets, sources = np.nonzero(table > np.float32(threshold))
        pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
    return sorted(pairs)


def with_feature(entry: bytes, feature: str, fields: Sequence[str] = ()) -> str:
    """Add ``fields`` before the features of a line of an n-best list, and ``feature`` after them.

    Source: Marian's scorer, ``--n-best-feature``, ``--word-scores`` and ``--alignment``.
    """
    parts = [part for part in entry.decode("utf-8", "surrogateescape").split("|||") if part]
    added = "".join(f" {field} |||" for field in fields)
    parts[2] = f"{added}{parts[2]}{feature} "
    return "|||".join(parts)
