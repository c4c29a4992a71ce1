"""How long lanes are and how many rows they have: few sizes, because each has its own programs."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass

from nmt.text.shapes import few_lengths, length_bucket

FIRST_LENGTHS = 24, 48
LATER_LENGTH = 104
"""Padded source lengths of lanes: 24, 48, 104, 208, 416, ..."""
MOST_LANES, MOST_PROGRAMS = 2, 4
"""Lanes for a group of sentences, and their programs: one each and one for each door. With the two of the
lane for translations that do not end these are six."""
PROGRAM = 3_000
"""About how many words are translated in the shortest lane instead of making a program: 1,000 if it is read
from a cache, 10,000 if it is compiled."""
PROGRAM_OF_GPU = 80_000
"""The same on an H200: 200,000 if it is compiled, which takes it six seconds."""
BASE = 100
"""The cost of a word without padding, in positions of the source that each word attends to."""
ROWS, HYPOTHESES = {"cpu": 64}, {"cpu": 128}
"""The most in a lane, by platform: on a CPU products of more are hardly more efficient, and rows stay idle at
the end."""
ELSEWHERE = 2048
"""Kernels of a step take less time than starting them: 512 on an H200 translate 1.6 times as slowly."""
HYPOTHESIS = 1 << 25
"""Bytes that a GPU must have for each, in a lane of ``LATER_LENGTH``: 16 times what a transformer of 512
features needs."""
STEP = {"cpu": 16}
"""What a step costs whatever its rows, in hypotheses, by platform; elsewhere rows are nearly free."""
FREE_ROWS = 1 << 20
WASTE, STEPS_WASTED = {"cpu": 25_000}, 1_500
"""About how many steps of hypotheses are wasted before a program is made; how many steps, where rows are
nearly free."""
FEW_ROWS = 8


@dataclass(frozen=True, slots=True, order=True)
class LaneSize:
    """What tells the lanes of a group of sentences apart; the least sentence that fits is the best."""

    length: int
    """Of sources."""
    capacity: int
    """In steps."""
    places: int
    """For words of all hypotheses of a sentence."""

    def holds(self, other: LaneSize) -> bool:
        """Whether sentences of another lane fit."""
        mine, others = astuple(self), astuple(other)
        return all(size <= own for own, size in zip(mine, others, strict=True))


def lane_length(length: int) -> int:
    """The padded length of the narrowest lane for so many source words."""
    for known in FIRST_LENGTHS:
        if length <= known:
            return known
    found = LATER_LENGTH
    while found < length:
        found *= 2
    return found


def choose_lanes(lengths: Counter[int], known: Collection[int] = (), program: float = PROGRAM) -> list[int]:
    """The padded lengths of the lanes for sentences of these lengths, ascending.

    lengths: how many sentences there are of each length. known: lengths of lanes that are compiled. program:
    what making one costs, in words.
    """

    def words(length: int, padded: int) -> float:
        return length * (BASE + padded) / (BASE + FIRST_LENGTHS[0])

    ladder = map(lane_length, lengths)
    return few_lengths(lengths, ladder, words, price=2 * program, most=MOST_LANES, known=known)


def choose_doors(
    lengths: Counter[int], lane: int, known: Collection[int], most: int, program: float
) -> list[int]:
    """The padded lengths for encoding sentences that enter a lane, ascending; the last is the lane's.

    lengths, known, program: as for ``choose_lanes``, of this lane. most: how many there may be.
    """
    ladder = {min(length_bucket(length), lane) for length in lengths} | {lane}
    return few_lengths(lengths, ladder, _encoding, price=program, most=most, known=known, top=lane)


def _encoding(_: int, padded: int) -> float:
    """What encoding a sentence costs, in target words."""
    return padded / 2


class Lengths:
    """The padded lengths of lanes and of their doors, chosen for all sentences so far.

    A door of a lane is a length to which sentences are padded when they are encoded. Recurrent encoders read
    one word after the other, padding too, so that doors matter more to them than a second lane.
    """

    def __init__(self, platform: str = "cpu") -> None:
        self._program = PROGRAM if platform == "cpu" else PROGRAM_OF_GPU
        self._lock = threading.Lock()
        self._seen: Counter[int] = Counter()
        self._lanes: set[int] = set()
        self._doors: dict[int, set[int]] = {}

    def lanes(self, lengths: Iterable[int]) -> list[int]:
        """The lanes for sentences of these lengths, ascending."""
        now = Counter(lengths)
        with self._lock:
            self._seen.update(now)
            self._lanes.update(choose_lanes(self._seen, self._lanes, self._program))
            by_lane: dict[int, Counter[int]] = {}
            for length, count in self._seen.items():
                by_lane.setdefault(self._lane(length), Counter())[length] = count
            for lane, own in by_lane.items():
                doors = self._doors.setdefault(lane, set())
                doors.update(choose_doors(own, lane, doors, self._most_doors(lane), self._program))
            return sorted({self._lane(length) for length in now})

    def door(self, lane: int, length: int) -> int:
        """The narrowest door of a lane for sentences of at most this length."""
        with self._lock:
            return min((door for door in self._doors.get(lane, ()) if door >= length), default=lane)

    def row_door(self, lane: int, length: int) -> int:
        """The padded length for encoding a sentence of this length alone: half of the lane's if that is
        enough and the lane is a long one, and the only one, so that six programs still do for all."""
        with self._lock:
            half = -(-lane // 2)
            return half if length <= half and len(self._lanes) == 1 and lane >= LATER_LENGTH else lane

    def _lane(self, length: int) -> int:
        return min(lane for lane in self._lanes if lane >= length)

    def _most_doors(self, lane: int) -> int:
        others = sum(len(self._doors.get(other, ())) or 1 for other in self._lanes - {lane})
        return max(1, MOST_PROGRAMS - len(self._lanes) - others)

    @property
    def longest(self) -> int:
        """The longest lane so far."""
        with self._lock:
            return max(self._lanes)


class LaneRows:
    """How many rows lanes have.

    With more rows there are fewer steps; with fewer, fewer are idle when the last sentences go on alone.

    memory: of a GPU, in bytes; rows of longer lanes need more of it.
    """

    def __init__(self, beam: int, platform: str, memory: float = math.inf) -> None:
        most = min(ROWS.get(platform, ELSEWHERE), HYPOTHESES.get(platform, ELSEWHERE) // beam)
        most = max(FEW_ROWS, most)
        self.sizes = sorted({1, *(max(1, most // part) for part in (8, 4, 2, 1))})
        self._beam, self._step, self._memory = beam, STEP.get(platform, FREE_ROWS), memory
        self._waste = WASTE.get(platform, STEPS_WASTED * FREE_ROWS)
        self._lock = threading.Lock()
        self._known: dict[LaneSize, set[int]] = {}
        self._wasted: Counter[tuple[LaneSize, int]] = Counter()

    def of_lane(self, lane: LaneSize, lengths: Sequence[int], searches: int) -> int:
        """Those of a lane for sentences of these lengths, if so many searches share them: a size that it has
        had, until that has wasted what a program costs."""
        costs = {rows: self._cost(rows, lengths, searches) for rows in self._fitting(lane)}
        best = min(costs, key=costs.__getitem__)
        with self._lock:
            known = self._known.setdefault(lane, set())
            chosen = min(known, key=costs.__getitem__, default=best)
            self._wasted[lane, best] += costs[chosen] - costs[best]
            if self._wasted[lane, best] > self._waste:
                chosen = best
            known.add(chosen)
            return chosen

    def _fitting(self, lane: LaneSize) -> list[int]:
        """The numbers of rows for which there is memory; one row always."""
        each = self._beam * HYPOTHESIS * max(1.0, lane.length / LATER_LENGTH)
        return [rows for rows in self.sizes if rows == 1 or rows * each <= self._memory]

    def _cost(self, rows: int, lengths: Sequence[int], searches: int) -> int:
        """Of all steps, in hypotheses, if translations are as long as their sources."""
        at_once = min(searches, -(-len(lengths) // rows))
        steps = max(*lengths, -(-sum(lengths) // (rows * at_once)), 0)
        return steps * (self._step + rows * self._beam)
