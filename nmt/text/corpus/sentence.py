"""What a batch is made of."""

from __future__ import annotations

from dataclasses import dataclass

Links = list[tuple[int, int]]
"""Pairs of positions in the source and in the target."""


@dataclass(slots=True)
class Sentence:
    """A sentence pair: word ids of each stream, ``</s>`` included.

    number: of its row, from 0. alignment: its links. weights: of the target words, from the first one on.
    """

    number: int
    streams: tuple[list[int], ...]
    alignment: Links | None = None
    weights: list[float] | None = None
