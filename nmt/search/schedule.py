"""Which sentences are searched in which lane, and when.

Sentences wait in queues, one for each lane, the longest first. A search fills the free rows of its lane,
runs until some are free again, and goes on so until the queue is empty; several searches take from the same
queues, because the small products of a step keep one core busy, not several.
"""

from __future__ import annotations

import bisect
import contextlib
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass

import numpy as np

from mgraph.device import platform_of
from nmt.runtime.devices import cores
from nmt.search.results import Hypothesis
from nmt.text.shapes import few_lengths, length_bucket

FIRST_LENGTHS = 24, 48
LATER_LENGTH = 104
"""Padded source lengths of lanes: 24, 48, 104, 208, 416, ..."""
MOST_LANES, MOST_DOORS = 2, 2
"""Lanes for a group of sentences, and lengths for encoding those of a lane: six programs serve all."""
PROGRAM = 3_000
"""About how many words are translated in the shortest lane instead of making a program: 1,000 if it is read
from a cache, 10,000 if it is compiled."""
BASE = 100
"""The cost of a word without padding, in positions of the source that each word attends to."""
ROWS, HYPOTHESES = {"cpu": 64}, {"cpu": 128}
"""The most in a lane, by platform: on a CPU products of more are hardly more efficient, and rows stay idle at
the end."""
ELSEWHERE = 512
STEP = {"cpu": 16}
"""What a step costs whatever its rows, in hypotheses, by platform; elsewhere rows are nearly free."""
FREE_ROWS = 1 << 20
WASTE = 25_000
"""About how many steps of hypotheses are wasted before a program is made."""
FEW_ROWS = 8
MOST_SEARCHES = 8


@dataclass(frozen=True, slots=True)
class Request:
    """A sentence that waits for its search."""

    index: int
    sources: tuple[Sequence[int], ...]
    """Word ids of each source."""
    limit: int
    """The maximum number of target words."""
    prefix: Sequence[int] | None = None
    candidates: np.ndarray | None = None
    """The shortlist, int32, ascending."""
    number: int = 0
    """Determines, with the seed, the noise of sampling."""

    @property
    def length(self) -> int:
        return max(map(len, self.sources))


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


Found = list[tuple[int, list[Hypothesis]]]
"""Indices of sentences that are done, with their hypotheses."""


def lane_length(length: int) -> int:
    """The padded length of the narrowest lane for so many source words."""
    for known in FIRST_LENGTHS:
        if length <= known:
            return known
    found = LATER_LENGTH
    while found < length:
        found *= 2
    return found


def choose_lanes(lengths: Counter[int], known: Collection[int] = ()) -> list[int]:
    """The padded lengths of the lanes for sentences of these lengths, ascending.

    lengths: how many sentences there are of each length. known: lengths of lanes that are compiled.
    """

    def words(length: int, padded: int) -> float:
        return length * (BASE + padded) / (BASE + FIRST_LENGTHS[0])

    ladder = map(lane_length, lengths)
    return few_lengths(lengths, ladder, words, price=2 * PROGRAM, most=MOST_LANES, known=known)


def choose_doors(lengths: Counter[int], lane: int, known: Collection[int] = ()) -> list[int]:
    """The padded lengths for encoding sentences that enter a lane, ascending; the last is the lane's.

    lengths, known: as for ``choose_lanes``, of this lane.
    """
    ladder = {min(length_bucket(length), lane) for length in lengths} | {lane}
    return few_lengths(lengths, ladder, _encoding, price=PROGRAM, most=MOST_DOORS, known=known, top=lane)


def _encoding(_: int, padded: int) -> float:
    """What encoding a sentence costs, in target words."""
    return padded / 2


class Lengths:
    """The padded lengths of lanes and of their doors, chosen for all sentences so far.

    A door of a lane is a length to which sentences are padded when they are encoded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[int] = Counter()
        self._lanes: set[int] = set()
        self._doors: dict[int, set[int]] = {}

    def lanes(self, lengths: Iterable[int]) -> list[int]:
        """The lanes for sentences of these lengths, ascending."""
        now = Counter(lengths)
        with self._lock:
            self._seen.update(now)
            self._lanes.update(choose_lanes(self._seen, self._lanes))
            by_lane: dict[int, Counter[int]] = {}
            for length, count in self._seen.items():
                by_lane.setdefault(self._lane(length), Counter())[length] = count
            for lane, own in by_lane.items():
                doors = self._doors.setdefault(lane, set())
                doors.update(choose_doors(own, lane, doors))
            return sorted({self._lane(length) for length in now})

    def door(self, lane: int, length: int) -> int:
        """The narrowest door of a lane for sentences of at most this length."""
        with self._lock:
            return min((door for door in self._doors.get(lane, ()) if door >= length), default=lane)

    def _lane(self, length: int) -> int:
        return min(lane for lane in self._lanes if lane >= length)


class LaneRows:
    """How many rows lanes have: few sizes, because each has its own programs.

    With more rows there are fewer steps; with fewer, fewer are idle when the last sentences go on alone.
    """

    def __init__(self, beam: int, platform: str) -> None:
        most = min(ROWS.get(platform, ELSEWHERE), HYPOTHESES.get(platform, ELSEWHERE) // beam)
        most = max(FEW_ROWS, most)
        self.sizes = sorted({1, *(max(1, most // part) for part in (8, 4, 2, 1))})
        self._beam, self._step = beam, STEP.get(platform, FREE_ROWS)
        self._lock = threading.Lock()
        self._known: dict[LaneSize, set[int]] = {}
        self._wasted: Counter[tuple[LaneSize, int]] = Counter()

    def of_lane(self, lane: LaneSize, lengths: Sequence[int], searches: int) -> int:
        """Those of a lane for sentences of these lengths, if so many searches share them: a size that it has
        had, until that has wasted what a program costs."""
        costs = {rows: self._cost(rows, lengths, searches) for rows in self.sizes}
        best = min(costs, key=costs.__getitem__)
        with self._lock:
            known = self._known.setdefault(lane, set())
            chosen = min(known, key=costs.__getitem__, default=best)
            self._wasted[lane, best] += costs[chosen] - costs[best]
            if self._wasted[lane, best] > WASTE:
                chosen = best
            known.add(chosen)
            return chosen

    def _cost(self, rows: int, lengths: Sequence[int], searches: int) -> int:
        """Of all steps, in hypotheses, if translations are as long as their sources."""
        at_once = min(searches, -(-len(lengths) // rows))
        steps = max(*lengths, -(-sum(lengths) // (rows * at_once)), 0)
        return steps * (self._step + rows * self._beam)


class Waiting:
    """The queues of sentences that wait, shared by searches."""

    def __init__(self, requests: Iterable[Request], sizes: Sequence[LaneSize], beam: int) -> None:
        self._beam = beam
        self._lock = threading.Lock()
        self._queues: dict[LaneSize, list[Request]] = {size: [] for size in sizes}
        self._searches: Counter[LaneSize] = Counter()
        for request in sorted(requests, key=_descending):
            self._queues[next(s for s in sizes if s.length >= request.length)].append(request)

    def lengths(self) -> dict[LaneSize, list[int]]:
        """The lengths of the sentences that wait for each lane, if there are any."""
        with self._lock:
            return {size: [r.length for r in waiting] for size, waiting in self._queues.items() if waiting}

    def next_lane(self) -> LaneSize | None:
        """The lane for another search, None if nothing waits: one with few searches, so that programs of
        several lanes are compiled at once, and of those the longest, so that what is left at the end is
        short. One with few sentences has enough with one search."""
        with self._lock:
            waiting = [size for size in sorted(self._queues, reverse=True) if self._queues[size]]
            worth = [s for s in waiting if not self._searches[s] or len(self._queues[s]) > FEW_ROWS]
            chosen = min(worth or waiting, key=lambda size: self._searches[size], default=None)
            if chosen is not None:
                self._searches[chosen] += 1
            return chosen

    def left(self, size: LaneSize) -> None:
        """A search has left a lane."""
        with self._lock:
            self._searches[size] -= 1

    def take(
        self,
        size: LaneSize,
        most: int,
        fits: Callable[[Request], bool] = lambda _: True,
        *,
        full: bool = False,
    ) -> list[Request]:
        """Up to ``most`` sentences for a lane that fit, the longest first; of the last ones only a fair share
        of each search there.

        When its own queue is empty, sentences of shorter lanes come here too: the longest if the lane is
        ``full`` of its own, which would otherwise leave it one by one, or else the last ones; if many are
        left there, it is better to end this lane and go there.
        """
        with self._lock:
            own = self._queues[size]
            found = _taken(own, min(most, -(-len(own) // max(1, self._searches[size]))), fits)
            others = [
                waiting for other, waiting in self._queues.items() if size.holds(other) and other != size
            ]
            if not own and (full or sum(map(len, others)) <= most - len(found)):
                for waiting in reversed(others):
                    found += _taken(waiting, most - len(found), fits)
            return found

    def again(self, request: Request, whole: LaneSize) -> None:
        """Search a sentence once more from its start, for which its lane had no room: in a lane that has, or
        in the ``whole`` one, which has room for all sentences of that length."""
        with self._lock:
            enough = LaneSize(whole.length, request.limit, request.limit * self._beam)
            chosen = min((size for size in self._queues if size.holds(enough)), default=whole)
            bisect.insort(self._queues.setdefault(chosen, []), request, key=_descending)


def searches_at_once(cpu_threads: int = 0, devices: int = 1) -> int:
    """How many searches keep the devices busy: one for each, on a CPU one for each of ``cpu_threads``, or of
    its cores."""
    if platform_of(None) != "cpu":
        return devices
    return max(min(cpu_threads or cores(), MOST_SEARCHES), devices)


def _taken(waiting: list[Request], most: int, fits: Callable[[Request], bool]) -> list[Request]:
    """Remove up to ``most`` sentences from a queue: the longest that fits, as often as there is one."""
    found: list[Request] = []
    next_one = 0
    while next_one < len(waiting) and len(found) < most:
        if fits(waiting[next_one]):
            found.append(waiting.pop(next_one))
        else:  # nor do others of this length
            next_one = bisect.bisect(waiting, _descending(waiting[next_one]), lo=next_one, key=_descending)
    return found


def _descending(request: Request) -> int:
    return -request.length


@dataclass
class Searches:
    """Several searches at once, each in a thread.

    settings: context of the caller's settings of JAX for a thread.
    """

    count: int
    settings: Callable[[], AbstractContextManager[None]]

    def run(self, search: Callable[[int], Generator[Found]]) -> Iterator[Found]:
        """What all searches find, each given its number, as soon as they do. Their first error is raised when
        all have ended."""
        if self.count == 1:
            yield from search(0)
            return
        results: queue.Queue[Found | BaseException | None] = queue.Queue()
        stopped = threading.Event()

        def work(number: int) -> None:
            try:
                with self.settings(), contextlib.closing(search(number)) as turns:
                    for found in turns:
                        results.put(found)
                        if stopped.is_set():
                            break
            except BaseException as error:
                results.put(error)
            finally:
                results.put(None)

        threads = [
            threading.Thread(target=work, args=[number], name="mgraph-search") for number in range(self.count)
        ]
        for thread in threads:
            thread.start()
        try:
            left, errors = self.count, []
            while left:
                found = results.get()
                if isinstance(found, list):
                    yield found
                elif found is None:
                    left -= 1
                else:
                    stopped.set()
                    errors.append(found)
            if errors:
                raise errors[0]
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
