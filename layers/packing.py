"""Packed sentences: one after the other in rows, so that products multiply no padding.

Only attention and recurrences, which look at whole sentences, need them laid out, one sentence per row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from mgraph import (
    ArgumentError,
    Node,
    ShapeError,
    Type,
    cast,
    flatten,
    gt,
    narrow,
    relocate,
    reshape,
    rows,
    shift,
    transpose,
)


class PackedWords(NamedTuple):
    """Where the words of packed sentences are: packed, in rows that hold one sentence after the other without
    padding between them; and laid out, one sentence per row."""

    places: Node
    """Integers ``(batch, length)``: where in the rows each word of a sentence is, ``row * width + column``.
    Padding points past the end or, without ``origins``, anywhere."""
    origins: Node | None = None
    """Integers ``(rows, width)``, the other way round: where in the layout each word of a row is,
    ``sentence * length + position``; padding points past the end. None for sentences that are only laid out
    and need no gradients."""
    positions: Node | None = None
    """Integers ``(rows, width)``: the position of each word in its sentence, from 0. None as above."""
    tiers: tuple[tuple[int, int], ...] = ()
    """For sentences sorted by length, longest first: the number of sentences in each tier, and the length of
    its longest sentence."""

    @property
    def length(self) -> int:
        """The longest sentence that can be laid out."""
        found: int = self.places.shape[1]
        return found


def laid_out(x: Node, packing: PackedWords | None) -> Node:
    """``x (rows, width, dim)``, the words of packed sentences, as ``(batch, length, dim)``.

    Without ``packing`` the sentences are laid out already, and the result is ``x`` itself. ``ShapeError`` for
    other axes.
    """
    if packing is None:
        return x
    _check_words("laid_out", x)
    if packing.origins is None:
        words = reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))
        found = rows(words, flatten(packing.places))
    else:
        found = _moved(x, packing.places, packing.origins)
    return reshape(found, (*packing.places.shape, x.shape[2]))


def taken_up(x: Node, packing: PackedWords | None) -> Node:
    """``x (batch, length, dim)`` as ``(rows, width, dim)``: the reverse of ``laid_out``, zeros at padding.

    ``ArgumentError`` without ``origins``, ``ShapeError`` for other axes.
    """
    if packing is None:
        return x
    origins = _known(packing.origins, "origins")
    _check_words("taken_up", x)
    found = _moved(x, origins, packing.places)
    return reshape(found, (*origins.shape, x.shape[2]))


def at_positions(table: Node, packing: PackedWords) -> Node:
    """For each word, the row of ``table (length, dim)`` at its position, ``(rows, width, dim)``.

    ``ArgumentError`` without ``positions``.
    """
    positions = _known(packing.positions, "positions")
    return reshape(rows(table, flatten(positions)), (*positions.shape, table.shape[-1]))


def carried_states(packing: PackedWords, kind: Type) -> tuple[Node, Node]:
    """Masks for ``RNN``, forwards and backwards, ``(width, rows, 1)`` each: 1 where a word follows another
    word of its sentence, and where another follows it; 0 elsewhere. kind: the element type.

    ``ArgumentError`` without ``positions``.
    """
    positions = transpose(_known(packing.positions, "positions"))
    follows = cast(gt(positions, 0), kind)
    forwards = reshape(follows, (*follows.shape, 1))
    return forwards, shift(forwards, (-1, 0, 0))


def in_tiers(x: Node, packing: PackedWords) -> list[Node]:
    """``x (batch, length, ...)`` split into its tiers of sentences, ``(sentences, words, ...)`` each, which
    have less padding."""
    found, first = [], 0
    for count, length in packing.tiers:
        found.append(narrow(narrow(x, 0, first, count), 1, 0, length))
        first += count
    return found


def _moved(x: Node, origins: Node, destinations: Node) -> Node:
    """``relocate`` for words and places that have two axes; the result is ``(1, words, dim)``."""
    words = reshape(x, (1, x.shape[0] * x.shape[1], x.shape[2]))
    places = (reshape(p, (1, math.prod(p.shape))) for p in (origins, destinations))
    return relocate(words, *places)


def _check_words(what: str, x: Node) -> None:
    """``ShapeError`` unless ``x`` has the three axes of words."""
    if len(x.shape) != 3:
        raise ShapeError(f"{what}: expected words of three axes, the last their features, got {x.shape}")


def _known(places: Node | None, what: str) -> Node:
    if places is None:
        raise ArgumentError(f"these sentences can only be laid out: PackedWords.{what} is None")
    return places
