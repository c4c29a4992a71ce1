"""How long lanes are and how many rows they have: few sizes, because each needs its own programs."""

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
"""The most lanes for a group of sentences, and the most programs for these lanes: one per lane and one per
door. The lane for translations that do not end has two more, which makes six."""
PROGRAM = 3_000
"""About how many words the shortest lane translates in the time that making a program takes: 1,000 if it is
read from a cache, 10,000 if it is compiled."""
PROGRAM_OF_GPU = 80_000
"""The same on an H200: 200,000 if it is compiled, which takes six seconds."""
BASE = 100
"""The fixed cost of a word; each source position, padding included, to which the word attends costs 1."""
ROWS, HYPOTHESES = {"cpu": 64}, {"cpu": 128}
"""The most in a lane, by platform: on a CPU larger products are hardly more efficient, and more rows would be
idle at the end."""
ELSEWHERE = 2048
"""The most on other platforms, where launching the kernels of a step takes longer than running them: 512 make
an H200 1.6 times as slow."""
HYPOTHESIS = 1 << 25
"""Bytes of GPU memory required per hypothesis, in a lane of ``LATER_LENGTH``: 16 times what a transformer of
512 features needs."""
STEP = {"cpu": 16}
"""The fixed cost of a step, in hypotheses, by platform; elsewhere rows are nearly free."""
FREE_ROWS = 1 << 20
WASTE, STEPS_WASTED = {"cpu": 25_000}, 1_500
"""About how much is wasted before a program is made: in steps of one hypothesis, by platform; in steps of all
rows, where rows are nearly free."""
FEW_ROWS = 8
MORE, MOST_MORE = 8, 1_000
"""Lengths are chosen again after one sentence more for ``MORE`` known ones, but after ``MOST_MORE`` at the
latest, as texts may change: with hundreds of lengths, choosing takes milliseconds, too many for each line of
a queue."""


@dataclass(frozen=True, slots=True, order=True)
class LaneSize:
    """The sizes that distinguish the lanes of a group of sentences; the smallest that fits is the best."""

    length: int
    """The padded length of sources."""
    capacity: int
    """The most steps of a sentence."""
    places: int
    """Places for the words of all hypotheses of a sentence."""

    def holds(self, other: LaneSize) -> bool:
        """Whether sentences of the ``other`` lane fit."""
        mine, others = astuple(self), astuple(other)
        return all(size <= own for own, size in zip(mine, others, strict=True))


def lane_length(length: int) -> int:
    """The padded length of the narrowest lane for ``length`` source words."""
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
    what making a program costs, in words.
    """

    def words(length: int, padded: int) -> float:
        return length * (BASE + padded) / (BASE + FIRST_LENGTHS[0])

    ladder = map(lane_length, lengths)
    return few_lengths(lengths, ladder, words, price=2 * program, most=MOST_LANES, known=known)


def choose_doors(
    lengths: Counter[int], lane: int, known: Collection[int], most: int, program: float
) -> list[int]:
    """The padded lengths for encoding sentences that enter a lane, ascending; the last is the lane's.

    lengths, known, program: as for ``choose_lanes``, for this lane. most: how many doors it may have.
    """
    ladder = {min(length_bucket(length), lane) for length in lengths} | {lane}
    return few_lengths(lengths, ladder, _encoding, price=program, most=most, known=known, top=lane)


def _encoding(_: int, padded: int) -> float:
    """What encoding a sentence costs, in target words."""
    return padded / 2


class Lengths:
    """The padded lengths of lanes and of their doors, chosen for all sentences so far.

    A door of a lane is a length to which sentences are padded when they are encoded. Recurrent encoders read
    word by word, padding included, so doors matter more to them than a second lane.
    """

    def __init__(self, platform: str = "cpu") -> None:
        self._program = PROGRAM if platform == "cpu" else PROGRAM_OF_GPU
        self._lock = threading.Lock()
        self._seen: Counter[int] = Counter()
        self._total, self._chosen_for = 0, 0
        self._lanes: set[int] = set()
        self._doors: dict[int, set[int]] = {}

    def lanes(self, lengths: Iterable[int]) -> list[int]:
        """The lanes for sentences of these lengths, ascending."""
        now = Counter(lengths)
        with self._lock:
            self._seen.update(now)
            self._total += now.total()
            longer = max(now, default=0) > max(self._lanes, default=0)
            if longer or self._total - self._chosen_for > min(self._chosen_for // MORE, MOST_MORE):
                self._choose()
            return sorted({self._lane(length) for length in now})

    def _choose(self) -> None:
        self._chosen_for = self._total
        self._lanes.update(choose_lanes(self._seen, self._lanes, self._program))
        by_lane: dict[int, Counter[int]] = {}
        for length, count in self._seen.items():
            by_lane.setdefault(self._lane(length), Counter())[length] = count
        for lane, own in by_lane.items():
            doors = self._doors.setdefault(lane, set())
            doors.update(choose_doors(own, lane, doors, self._most_doors(lane), self._program))

    def door(self, lane: int, length: int) -> int:
        """The narrowest door of a lane for sentences of at most this length."""
        with self._lock:
            return min((door for door in self._doors.get(lane, ()) if door >= length), default=lane)

    def row_door(self, lane: int, length: int) -> int:
        """The padded length for encoding a sentence of this length alone: half of the lane's, if that is
        enough and the lane is long and the only one, so that six programs still suffice; else the lane's."""
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

    More rows need fewer steps; with fewer rows, fewer are idle while the last sentences are searched.

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
        """The rows of a lane for sentences of these lengths, shared by ``searches`` searches: a number that
        the lane has had before, until that has wasted what a program costs."""
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
        """The numbers of rows that fit into memory; one row always does."""
        each = self._beam * HYPOTHESIS * max(1.0, lane.length / LATER_LENGTH)
        return [rows for rows in self.sizes if rows == 1 or rows * each <= self._memory]

    def _cost(self, rows: int, lengths: Sequence[int], searches: int) -> int:
        """The cost of all steps, in hypotheses, if translations are as long as their sources."""
        at_once = min(searches, -(-len(lengths) // rows))
        steps = max(*lengths, -(-sum(lengths) // (rows * at_once)))
        return steps * (self._step + rows * self._beam)
