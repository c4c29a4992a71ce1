"""The data of a lane: its sizes, its rows, the sentences that wait, and the report to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mgraph import register_arrays
from nmt.search.choice import Rules
from nmt.search.trellis import Arrays, Beam, Sentences, Trellis

PART = 16
CUT = -1
"""The outcome of a sentence whose search ran out of room in its lane."""


@dataclass(frozen=True)
class LaneShape:
    """The sizes of a lane.

    rows: how many sentences are searched at the same time. waiting: how many encoded sentences may wait for
    rows. entering: how many may enter at the same time. beam: hypotheses of a sentence. sources, length:
    source streams, and their padded length. capacity: the maximum number of steps of a sentence. places: how
    many words of its hypotheses fit, if models keep words. bins: the number of bins into which waiting
    sentences are packed, and the words in each; None if each sentence is padded. candidates: padded size of
    the shortlists; 0 without them. listed: the most words in the union of the shortlists. forced: whether
    first words are forced. attention: whether to return the first model's attention. rules: how words are
    chosen.
    """

    rows: int
    waiting: int
    entering: int
    beam: int
    sources: int
    length: int
    capacity: int
    places: int
    bins: tuple[int, int] | None
    candidates: int
    listed: int
    forced: bool
    attention: bool
    rules: Rules

    @property
    def parts(self) -> tuple[int, ...]:
        """``places`` in one part or two: the second is not read while all words fit into the first."""
        first = -(-self.places // (3 * PART)) * PART
        return (first, self.places - first) if self.places > 2 * PART else (self.places,)

    @property
    def desks(self) -> int:
        """How many sentences the lane can hold, in rows or waiting: each keeps its trellis at its desk."""
        return self.rows + self.waiting

    def __str__(self) -> str:
        """``32 rows x 6 beams, 24 words, 56 steps``, for the log."""
        parts = [
            f"{self.rows} row{'s' * (self.rows > 1)} x {self.beam} beam{'s' * (self.beam > 1)}",
            f"{self.length} words",
            f"{self.capacity} steps",
        ]
        parts += [f"shortlists of {self.candidates}"] * bool(self.candidates)
        return ", ".join(parts + ["first words"] * self.forced + ["attention"] * self.attention)


@register_arrays
@dataclass(frozen=True)
class LaneState:
    """The arrays of a lane; axis 0 is the row, or ``row * beam + place in the beam``.

    desks int32 ``[rows]``: the desk of each row's sentence; past the last desk for a row without a sentence.
    trellis: by desk.
    """

    desks: Any
    sentences: Sentences
    encoded: tuple[Arrays, ...]
    beam: Beam
    trellis: Trellis


@register_arrays
@dataclass(frozen=True)
class Arrivals:
    """Sentences that wait for rows: the first ``count`` in the arrays.

    desks int32 ``[waiting]``: the desk of each. encoded: the encoder states of all models, or, for packed
    sentences, the projections from which these are arranged (``Model.packed_encoder``).
    With shortlists: listed int32 ``[listed]``, the words in the shortlists of all sentences, including those
    in rows; columns int32 ``[desks, candidates]``, the places of each sentence's candidates in ``listed``.
    """

    count: Any
    desks: Any
    sentences: Sentences
    encoded: tuple[Arrays, ...]
    listed: Any = None
    columns: Any = None


@register_arrays
@dataclass(frozen=True)
class LaneReport:
    """What the host reads after some steps; axis 0 is the desk.

    outcomes int32: for a finished sentence the number of its steps, or ``CUT``; 0 for any other. steps, busy
    int32 ``[]``: the number of steps, and the rows with sentences, summed over these steps.
    """

    outcomes: Any
    trellis: Trellis
    steps: Any
    busy: Any


def spec(*shape: int, kind: Any = np.int32) -> jax.ShapeDtypeStruct:
    """The shape and type of an array, by default int32."""
    return jax.ShapeDtypeStruct(shape, kind)
