"""Which sentences are searched in which lane, and when.

Sentences wait in queues, one for each lane, ordered by turns: early lines have the first turns, and in each
turn the longest sentences come first. The last turn has the most lines, so that the sentences left at the end
are short. A search fills the free rows of its lane, runs until some are free again, and repeats this until
the queue is empty. Several searches take from the same queues, because the small products of a step keep one
core busy, not several.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import queue
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import platform_of
from nmt.runtime.cores import cores
from nmt.search.lane_sizes import FEW_ROWS, LaneSize
from nmt.search.results import Hypothesis

MOST_SEARCHES = 8
TURN = 256
"""The fewest lines that are sorted by length together: the translations of early lines are ready before later
lines are begun."""
FIRST = 16
"""Lines that go before all others, for users who read the translations as they come."""
MOST_TRIES = 64
"""The most tries to find a sentence that fits into the room left."""


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


Found = list[tuple[int, list[Hypothesis]]]
"""Indices of sentences that are done, with their hypotheses."""


class Waiting:
    """The queues of sentences that wait, shared by searches."""

    def __init__(self, requests: Sequence[Request], sizes: Sequence[LaneSize], beam: int) -> None:
        self._beam = beam
        # A short turn at the end would begin with long sentences while other rows are idle.
        self._last_turn = max(0, len(requests) // TURN - 1) if requests else math.inf
        self._lock: AbstractContextManager[Any] = threading.Lock()
        self._queues: dict[LaneSize, list[Request]] = {size: [] for size in sizes}
        self._searches: Counter[LaneSize] = Counter()
        for request in sorted(requests, key=self._place):
            self._queues[next(s for s in sizes if s.length >= request.length)].append(request)

    def lengths(self) -> dict[LaneSize, list[int]]:
        """The lengths of the waiting sentences, for each lane that has any."""
        with self._lock:
            return {size: [r.length for r in waiting] for size, waiting in self._queues.items() if waiting}

    def next_lane(self) -> LaneSize | None:
        """The lane for another search; None if no sentence waits. Prefers a lane with few searches, so that
        the programs of several lanes compile at the same time, and among these the longest, so that the
        sentences left at the end are short. For a lane with few sentences one search is enough."""
        with self._lock:
            waiting = [size for size in sorted(self._queues, reverse=True) if self._queues[size]]
            worth = [s for s in waiting if not self._searches[s] or len(self._queues[s]) > FEW_ROWS]
            chosen = min(worth or waiting, key=self._priority, default=None)
            if chosen is not None:
                self._searches[chosen] += 1
            return chosen

    def _priority(self, size: LaneSize) -> tuple[float, ...]:
        """Of the lanes for which sentences wait, the one with the least is searched next."""
        return (self._searches[size],)

    def empty(self, size: LaneSize) -> bool:
        """Whether no sentence waits that a search of this lane could take."""
        with self._lock:
            return not any(own for other, own in self._queues.items() if size.holds(other))

    def leave(self, size: LaneSize) -> None:
        """Record that a search leaves a lane."""
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
        """Take up to ``most`` sentences that fit from the queue of a lane, in order, but no more than one
        search's fair share.

        When this queue is empty, sentences of shorter lanes may enter too. If the lane has several rows,
        ``full`` of its own sentences, the longest of the others do, or rows would fall idle one by one.
        Otherwise the others enter only if there is room for all; if many are left, it is better to end this
        lane and open theirs.
        """
        with self._lock:
            own = self._queues.get(size, [])  # none if the queues were stopped meanwhile
            found = self._taken(own, min(most, -(-len(own) // max(1, self._searches[size]))), fits)
            others = [waiting for other, waiting in self._queues.items() if size.holds(other)]
            if not own and (full or sum(map(len, others)) <= most - len(found)):
                for waiting in reversed(others):
                    found += self._taken(waiting, most - len(found), fits)
            return found

    def again(self, request: Request, whole: LaneSize) -> None:
        """Queue a sentence again, from its start, because its lane had no room: for a lane with enough, else
        for the ``whole`` one, which has room for any."""
        with self._lock:
            enough = LaneSize(request.length, request.limit, request.limit * self._beam)
            chosen = min((size for size in self._queues if size.holds(enough)), default=whole)
            self._put(chosen, request)

    def _put(self, size: LaneSize, request: Request) -> None:
        bisect.insort(self._queues.setdefault(size, []), request, key=self._place)

    def _taken(self, waiting: list[Request], most: int, fits: Callable[[Request], bool]) -> list[Request]:
        """Remove up to ``most`` sentences that fit from a queue, in order."""
        found: list[Request] = []
        kept: list[Request] = []
        next_one = tries = 0
        while next_one < len(waiting) and len(found) < most and tries < MOST_TRIES:
            request = waiting[next_one]
            if fits(request):
                found.append(request)
                next_one += 1
            else:  # neither do others of this length
                others = bisect.bisect(waiting, self._place(request), lo=next_one, key=self._place)
                kept += waiting[next_one:others]
                next_one = others
                tries += 1
        waiting[:next_one] = kept
        return found

    def _place(self, request: Request) -> tuple[float, int]:
        return self.turn(request), -request.length

    def turn(self, request: Request) -> float:
        """The turn of a sentence."""
        turn = -1 if request.index < FIRST else request.index // TURN
        return min(turn, self._last_turn)


def searches_at_once(cpu_threads: int = 0, devices: int = 1) -> int:
    """How many searches keep the devices busy: one for each device; on a CPU one for each of ``cpu_threads``,
    or of its cores, but at most 8 unless there are more devices. devices: how many were chosen; 0 for JAX's
    default."""
    if platform_of(None) != "cpu":
        return max(devices, 1)
    return max(min(cpu_threads or cores(), MOST_SEARCHES), devices)


@dataclass
class Searches:
    """Several searches at the same time, each in a thread.

    settings: makes a context with the caller's JAX settings for a thread.
    """

    count: int
    settings: Callable[[], AbstractContextManager[None]]

    def run(self, search: Callable[[int], Generator[Found]]) -> Iterator[Found]:
        """Call ``search`` with the number of each search, and yield what the searches find, as soon as they
        find it. The first error is raised once all searches have ended."""
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
