"""What a lane is made of: its sizes, its rows, who waits, and what the host reads."""

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
"""The outcome of a sentence for which its lane has no room."""


@dataclass(frozen=True)
class LaneShape:
    """The sizes of a lane.

    rows: sentences that are searched at once. waiting: how many wait, encoded, for rows. entering: how many
    enter at once. beam: hypotheses of a sentence. sources, length: source streams, and their padded length.
    capacity: the maximum number of steps of a sentence. places: for the words of its hypotheses, if models
    keep them. bins: in how many bins of how many words those who wait are packed; None if each is padded.
    candidates: padded size of the shortlists; 0 without them. listed: how many words are in any of them, at
    most. forced: whether first words are forced. attention: whether to return the first model's attention.
    rules: how words are chosen.
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
        """``places`` in parts: the last one is not read while all words have places before it."""
        first = -(-self.places // (3 * PART)) * PART
        return (first, self.places - first) if self.places > 2 * PART else (self.places,)

    @property
    def desks(self) -> int:
        """How many sentences may be known to the lane at once: a sentence keeps its trellis at its desk."""
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

    desks int32 ``[rows]``: of the sentences, past the last one for rows without. trellis: by desk.
    """

    desks: Any
    sentences: Sentences
    encoded: tuple[Arrays, ...]
    beam: Beam
    trellis: Trellis


@register_arrays
@dataclass(frozen=True)
class Arrivals:
    """Sentences that wait for rows, the first ``count`` of these.

    desks int32 ``[waiting]``: for each. encoded: the encoder states of all models, or for packed sentences
    what these are arranged from (``Model.packed_encoder``).
    With shortlists: listed int32 ``[listed]``, the words in those of all sentences, in rows too; columns
    int32 ``[desks, candidates]``, the places of each sentence's candidates among them.
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

    outcomes int32: how many steps a sentence took that is done, ``CUT``, or 0. steps, busy int32 ``[]``: how
    many steps these were, and the sum of the rows that had sentences in each.
    """

    outcomes: Any
    trellis: Trellis
    steps: Any
    busy: Any


def spec(*shape: int, kind: Any = np.int32) -> jax.ShapeDtypeStruct:
    """The shape and type of an array, of int32 if it is not said."""
    return jax.ShapeDtypeStruct(shape, kind)
