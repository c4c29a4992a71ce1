"""Which sentences are searched in which lane, and when.

Sentences wait in queues, one for each lane, by turns: those of early lines first, and of a turn's lines the
longest first. The last turn has the most lines, so that what is left at the end is short. A search fills the
free rows of its lane, runs until some are free again, and goes on so until the queue is empty; several
searches take from the same queues, because the small products of a step keep one core busy, not several.
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
"""The least lines that are sorted by length together: the first translations are there before the next are
begun."""
FIRST = 16
"""Lines before all others, for who reads the translations as they come."""
MOST_TRIES = 64
"""To find a sentence for the room that is left."""


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
        # A turn of few lines at the end would begin with long ones, beside rows that are idle.
        self._last_turn = max(0, len(requests) // TURN - 1) if requests else math.inf
        self._lock: AbstractContextManager[Any] = threading.Lock()
        self._queues: dict[LaneSize, list[Request]] = {size: [] for size in sizes}
        self._searches: Counter[LaneSize] = Counter()
        for request in sorted(requests, key=self._place):
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

    def empty(self, size: LaneSize) -> bool:
        """Whether nothing waits that a search of a lane could take."""
        with self._lock:
            return not any(own for other, own in self._queues.items() if size.holds(other))

    def leave(self, size: LaneSize) -> None:
        """A search leaves a lane."""
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
        """Up to ``most`` sentences for a lane that fit, those whose turn it is; of the last ones only a fair
        share of each search there.

        When its own queue is empty, sentences of shorter lanes come here too: the longest if the lane is
        ``full`` of its own, which would otherwise leave it one by one, or else the last ones; if many are
        left there, it is better to end this lane and go there.
        """
        with self._lock:
            own = self._queues[size]
            found = self._taken(own, min(most, -(-len(own) // max(1, self._searches[size]))), fits)
            others = [
                waiting for other, waiting in self._queues.items() if size.holds(other) and other != size
            ]
            if not own and (full or sum(map(len, others)) <= most - len(found)):
                for waiting in reversed(others):
                    found += self._taken(waiting, most - len(found), fits)
            return found

    def again(self, request: Request, whole: LaneSize) -> None:
        """Search a sentence once more from its start, for which its lane had no room: in a lane that has, or
        in the ``whole`` one, which has room for all."""
        with self._lock:
            enough = LaneSize(request.length, request.limit, request.limit * self._beam)
            chosen = min((size for size in self._queues if size.holds(enough)), default=whole)
            self._put(chosen, request)

    def _put(self, size: LaneSize, request: Request) -> None:
        bisect.insort(self._queues.setdefault(size, []), request, key=self._place)

    def _taken(self, waiting: list[Request], most: int, fits: Callable[[Request], bool]) -> list[Request]:
        """Remove up to ``most`` sentences from a queue: the next that fits, as often as one is found."""
        found: list[Request] = []
        kept: list[Request] = []
        next_one = tries = 0
        while next_one < len(waiting) and len(found) < most and tries < MOST_TRIES:
            request = waiting[next_one]
            if fits(request):
                found.append(request)
                next_one += 1
            else:  # nor do others of this length
                others = bisect.bisect(waiting, self._place(request), lo=next_one, key=self._place)
                kept += waiting[next_one:others]
                next_one = others
                tries += 1
        waiting[:next_one] = kept
        return found

    def _place(self, request: Request) -> tuple[float, int]:
        turn = -1 if request.index < FIRST else request.index // TURN
        return min(turn, self._last_turn), -request.length


def searches_at_once(cpu_threads: int = 0, devices: int = 1) -> int:
    """How many searches keep the devices busy: one for each, on a CPU one for each of ``cpu_threads``, or of
    its cores. devices: those that were chosen; 0 for JAX's own."""
    if platform_of(None) != "cpu":
        return max(devices, 1)
    return max(min(cpu_threads or cores(), MOST_SEARCHES), devices)


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
