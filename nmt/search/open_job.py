"""``OpenJob``: searches sentences that arrive while others are being searched."""

from __future__ import annotations

import bisect
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

from nmt.search.beam_search import BeamSearch, Job
from nmt.search.lane_sizes import LaneSize
from nmt.search.lane_state import LaneShape
from nmt.search.results import Hypothesis
from nmt.search.schedule import TURN, Found, Request, Waiting
from nmt.search.work import SearchWork

STEPS = 16
"""The most steps of a lane before newly arrived sentences may enter it."""
LONELY = 8
"""A lane with this many times the rows that it needs takes no more sentences."""
OVERTAKING = 8
"""A lane makes way for a sentence of another lane after about this many times the sentences that it holds:
its rows fall idle one by one meanwhile, so lanes that change often are half empty."""


class Arriving(Waiting):
    """Queues of waiting sentences, to which more are added."""

    def __init__(self, beam: int) -> None:
        super().__init__([], [], beam)
        self._changed = threading.Condition(threading.RLock())  # the collector may call ``stop`` at any time
        self._lock = self._changed
        self._closed = self._stopped = False
        self._places: dict[int, tuple[LaneSize, Request]] = {}  # of the waiting sentences, by index

    def add(self, requests: Iterable[tuple[LaneSize, Request]]) -> bool:
        """Let sentences wait for these lanes; False if the queues are closed."""
        with self._changed:
            if self._closed:
                return False
            for size, request in requests:
                self._put(size, request)
            self._changed.notify_all()
            return True

    def again(self, request: Request, whole: LaneSize) -> None:
        super().again(request, whole)
        with self._changed:
            self._changed.notify_all()

    def remove(self, indices: Iterable[int]) -> None:
        """Drop these sentences, if they wait; the queues are searched by bisection."""
        with self._changed:
            for index in indices:
                if (place := self._places.pop(index, None)) is None:
                    continue
                size, request = place
                waiting = self._queues.get(size, [])
                first = bisect.bisect_left(waiting, self._place(request), key=self._place)
                for at in range(first, len(waiting)):  # others may have the same turn and length
                    if waiting[at] is request:
                        del waiting[at]
                        break

    def _put(self, size: LaneSize, request: Request) -> None:
        super()._put(size, request)
        self._places[request.index] = size, request

    def _taken(self, waiting: list[Request], most: int, fits: Callable[[Request], bool]) -> list[Request]:
        found = super()._taken(waiting, most, fits)
        for request in found:
            self._places.pop(request.index, None)  # not there if the collector has called ``stop`` since
        return found

    def requests(self, size: LaneSize) -> list[Request]:
        """The sentences that wait for a lane."""
        with self._changed:
            return list(self._queues.get(size, ()))

    def next_lane(self) -> LaneSize | None:
        """As in ``Waiting``, but if no sentence waits, this waits for one until the queues are closed."""
        with self._changed:
            while not self._stopped:
                if (found := super().next_lane()) is not None or self._closed:
                    return found
                self._changed.wait()
            return None

    def _priority(self, size: LaneSize) -> tuple[float, ...]:
        # As long as lines arrive, the longest lane may never be empty.
        return *super()._priority(size), self.turn(self._queues[size][0])

    def turn_elsewhere(self, size: LaneSize) -> float:
        """The earliest turn of a sentence that waits for another lane, one without a search; infinity if none
        does."""
        with self._changed:
            idle = (own for other, own in self._queues.items() if other != size and not self._searches[other])
            return min((self.turn(own[0]) for own in idle if own), default=math.inf)

    def close(self) -> None:
        """Accept no more sentences."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Accept no more sentences, and drop those that wait."""
        with self._changed:
            self._closed = self._stopped = True
            self._queues.clear()
            self._places.clear()
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stopped


class OpenJob(Job):
    """Searches sentences that are added while it runs, with continuous batching.

    A sentence enters a lane while others are searched there, at most ``STEPS`` steps after its arrival if a
    row is free. A lane gets rows for the sentences that wait when it is opened. If many more or far fewer
    wait later, it takes no more, and the next lane gets another number of rows. Nor does it take sentences of
    much later turns than one that it cannot take and no other search can: that one would wait as long as
    others arrive.

    found, failed: called by the search threads with the index of a sentence and its hypotheses, or the error
    that ended its search. Other arguments: as for ``Job``.
    """

    def __init__(
        self,
        search: BeamSearch,
        *,
        forced: bool,
        attention: bool,
        count: int | None,
        found: Callable[[int, list[Hypothesis]], None],
        failed: Callable[[int, Exception], None],
    ) -> None:
        self.search, self.forced, self.attention = search, forced, attention
        self.count = search.count if count is None else count
        self.arriving = self.waiting = Arriving(search.beam_size)
        self.searches = search.searches
        self._usual: set[LaneSize] = set()
        self._found, self._failed = found, failed
        self.work = SearchWork()
        self._noting = threading.Lock()

    def add(self, requests: Sequence[Request]) -> bool:
        """Search these sentences too; False if the job is closed."""
        sizes = self.search.sizes(requests)
        self._usual.update(sizes)
        return self.arriving.add(
            (next(size for size in sizes if size.length >= request.length), request) for request in requests
        )

    def run(self, number: int) -> None:
        """Run search ``number`` until the job is closed and no sentence waits, or until it is stopped."""
        while (size := self.arriving.next_lane()) is not None:
            waiting, taken = self.arriving.requests(size), dict[int, Request]()
            try:
                if waiting:
                    with closing(self._searched(self._opened(size, waiting), size, number, taken)) as turns:
                        self._report(turns)
            except Exception as error:  # ends this lane only; other sentences have other lanes
                for index in taken or [request.index for request in waiting]:
                    self.arriving.remove([index])
                    self._failed(index, error)
            finally:
                self.arriving.leave(size)

    def _report(self, turns: Iterable[Found]) -> None:
        for found in turns:
            for index, hypotheses in found:
                self._found(index, hypotheses)
            if self.arriving.stopped:
                return

    def _opened(self, size: LaneSize, waiting: Sequence[Request]) -> LaneShape:
        """The shape of a lane for these sentences."""
        rows = self._rows(size, waiting)
        candidates = self.search.candidates(waiting)
        return self._shape(size, rows, candidates, self.search.listed(waiting, rows) if candidates else 0)

    def _rows(self, size: LaneSize, known: Sequence[Request]) -> int:
        """How many rows suit these sentences."""
        if size not in self._usual:
            return 1
        lengths = [request.length for request in known]
        return self.search.rows.of_lane(size, lengths, self.searches)

    def _take(
        self,
        size: LaneSize,
        shape: LaneShape,
        fits: Callable[[Request], bool],
        held: Sequence[Request],
        full: bool,
    ) -> list[Request]:
        waiting = self.arriving.requests(size)
        crowded = self.search.rows.sizes[-1] > shape.rows < len(waiting)
        lonely = bool(waiting) and LONELY * (len(held) + len(waiting)) <= shape.rows
        if (crowded or lonely) and held and self._rows(size, [*held, *waiting]) != shape.rows:
            return []

        ahead = OVERTAKING * len(held) // TURN
        last = self.arriving.turn_elsewhere(size) + ahead

        def may_enter(request: Request) -> bool:
            nonlocal last
            turn = self.arriving.turn(request)
            few = request.candidates is None or len(request.candidates) <= shape.candidates
            if turn <= last and few and fits(request):
                return True
            last = min(last, turn + ahead)
            return False

        return super()._take(size, shape, may_enter, held, full)

    def _until(self, size: LaneSize, living: int, enough: int) -> tuple[int, int]:
        if not self.arriving.requests(size):
            enough = max(0, living - 1)  # report each sentence as soon as it is done
        return enough, STEPS
