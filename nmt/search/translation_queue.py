"""``TranslationQueue``: many threads and tasks hand in lines, which are translated together."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from mgraph import MGraphError, callers_settings
from mgraph.device import check_process
from nmt.search.open_job import OpenJob
from nmt.search.results import Hypothesis, Translation
from nmt.search.service import Gathered
from nmt.search.translator import Translator
from nmt.settings import OptionError
from nmt.text.lines import as_bytes, without_end
from nmt.text.sentences import Sentence

logger = logging.getLogger(__name__)

MOST_LINES = 10_000
FEW_DEADLINES = 1024
"""Deadlines of futures that are done are kept up to this number."""


class QueueFullError(MGraphError):
    """A queue has as many lines as it allows."""


class QueueClosedError(MGraphError):
    """A queue was closed and takes no more lines."""


class LineTimeoutError(MGraphError, TimeoutError):
    """A line was not translated in time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """A line that is not done.

    owner: keeps the queue alive until the line is done.
    """

    sample: Sentence
    future: Future[Translation]
    owner: TranslationQueue


class TranslationQueue:
    """Translates lines that many threads or asyncio tasks hand in, all together, by continuous batching.

    A line enters the search while others are being searched, and its result is available as soon as it is
    done, whatever else waits. Results are those of ``translator``; with ``output_sampling``, line n is drawn
    like line n of a text.

    translator: with its models and options; it may be used directly, too.
    most_lines: how many lines may be in the queue, including those being searched.
    timeout: seconds that a line may take, from when it is handed in; None for no limit.
    n_best, return_attention: as for ``Translator.translate``.

    The search threads, as many as the translator has searches, start here and end at ``close``. The end of a
    ``with`` block closes the queue too; after an error, without finishing its lines. A queue that nothing
    refers to any more is closed.

    Raises OptionError for a value that is not allowed; DeviceError, also for each line, in a process forked
    from one in which JAX ran.
    """

    def __init__(
        self,
        translator: Translator,
        *,
        most_lines: int = MOST_LINES,
        timeout: float | None = None,
        n_best: int | None = None,
        return_attention: bool = False,
    ) -> None:
        check_process()
        if not isinstance(translator, Translator):
            raise OptionError(f"translator must be a Translator, got {translator!r:.80}")
        if not (type(most_lines) is int and most_lines >= 1):
            raise OptionError(f"most_lines must be a whole number from 1, got {most_lines!r}")
        self.translator, self.most_lines = translator, most_lines
        self.timeout = _seconds("timeout", timeout)
        self._attention, self._count = return_attention, translator.count(n_best)
        service = translator.service
        self._gathered = Gathered(service.draws)
        deliver, fail = weakref.WeakMethod(self._deliver), weakref.WeakMethod(self._fail)

        def found(index: int, hypotheses: list[Hypothesis]) -> None:
            if method := deliver():
                method(index, hypotheses)

        def failed(index: int, error: Exception) -> None:
            if method := fail():
                method(index, error)

        self._job = OpenJob(
            service.search,
            forced=service.forced,
            attention=service.attends(return_attention),
            count=service.searched(self._count),
            found=found,
            failed=failed,
        )
        self._lock = threading.RLock()
        self._lines: dict[int, _Line] = {}
        self._numbers = itertools.count()
        self._places = 0  # taken by lines in the queue or about to enter it
        self._room: OrderedDict[Future[None], None] = OrderedDict()
        self._closed = False
        self._deadlines = _Deadlines()
        settings = callers_settings()
        self._threads = [
            threading.Thread(target=_work, args=(self._job, k, settings), name="mgraph-queue", daemon=True)
            for k in range(self._job.searches)
        ]
        # When the process ends, the last finalizer is called first.
        weakref.finalize(self._job, _join, self._threads)
        for stop in self._job.arriving.stop, self._deadlines.stop:
            weakref.finalize(self, stop)
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> TranslationQueue:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(drop=kind is not None)

    def __len__(self) -> int:
        """How many lines are in the queue: handed in and not done."""
        return len(self._lines)

    def submit(
        self, *texts: str | bytes, timeout: float | None = None, wait: float | None = 0.0
    ) -> Future[Translation]:
        """Hand in a line; its translation is the result of the future.

        texts: the line of each text that ``Translator.translate`` takes, without its end.
        timeout: overrides the queue's; when it expires, the future raises LineTimeoutError.
        wait: how many seconds to wait for room if the queue is full; None for no limit.

        ``future.cancel()`` takes the line back; if it is being searched, the result is discarded. A line that
        is left out, such as one that is too long, has a result too: ``Translation.problem`` says why.

        Raises QueueFullError if there is no room, QueueClosedError after ``close``, OptionError for a wrong
        number of texts and for seconds that are not a number from 0, ArgumentError for a line that is not
        text. If an error ends the search of the line, the future raises it; lines in other lanes are not
        affected.
        """
        row = self._row(texts, timeout)
        _seconds("wait", wait)  # an error in the wait would lose the place for good
        place = self._asked()
        try:
            place.result(wait)
        except TimeoutError:
            if self._taken_back(place):
                raise QueueFullError(f"the queue is full: {self.most_lines} line(s) are in it") from None
            place.result()
        except KeyboardInterrupt:
            if not self._taken_back(place):
                self._leave()
            raise
        return self._entered(row, timeout)

    async def translation(self, *texts: str | bytes, timeout: float | None = None) -> Translation:
        """The translation of a line, to be awaited; arguments and errors as for ``submit``.

        Waits for room. Cancelling the task takes the line back. Any event loop may be used.
        """
        row = self._row(texts, timeout)
        place = self._asked()
        try:
            await asyncio.wrap_future(place)
        except (asyncio.CancelledError, GeneratorExit):  # the latter if the event loop is closed meanwhile
            if not self._taken_back(place):
                self._leave()
            raise
        return await asyncio.wrap_future(self._entered(row, timeout))

    def translate(self, *texts: Iterable[str | bytes], timeout: float | None = None) -> list[str]:
        """Translate lines, as ``Translator.translate``, together with those of other threads.

        Waits for room. Errors as for ``submit``; ParallelTextError for texts that differ in length. After an
        error the other lines are taken back.
        """
        futures: list[Future[Translation]] = []
        rows = self.translator.rows(texts)
        try:
            futures.extend(self.submit(*row, timeout=timeout, wait=None) for row in rows)
            rows.check()
            found = [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return [
            self.translator.format(replace(translation, line=line)) for line, translation in enumerate(found)
        ]

    def close(self, *, drop: bool = False) -> None:
        """Take no more lines, and wait until those in the queue are done.

        drop: cancel them instead. May be called more than once, by any thread; in a future's callback it may
        return before they are done.
        """
        with self._lock:
            self._closed = True
            outside, self._room = self._room, OrderedDict()
            inside = list(self._lines.values())
        for place in outside:
            if place.set_running_or_notify_cancel():
                place.set_exception(_closed())
        if drop:
            self._job.arriving.stop()
            for line in inside:
                line.future.cancel()
        self._job.arriving.close()
        _join(self._threads)
        self._deadlines.stop()

    def _row(self, texts: Sequence[str | bytes], timeout: float | None) -> list[bytes]:
        """The line of each text; checks the arguments."""
        _seconds("timeout", timeout)
        self.translator.require_inputs(len(texts))
        return [without_end(as_bytes(text)) for text in texts]

    def _asked(self) -> Future[None]:
        """Ask for a place in the queue: a future that is done as soon as a place is free."""
        check_process()  # a fork would wait for the search threads, which it does not have
        place: Future[None] = Future()
        with self._lock:
            if self._closed:
                raise _closed()
            if self._places == self.most_lines:
                self._room[place] = None
                return place
            self._places += 1
        place.set_result(None)
        return place

    def _taken_back(self, place: Future[None]) -> bool:
        """Withdraw the request for a place; False if the place has been given already."""
        if not place.cancel():
            return False
        with self._lock:
            self._room.pop(place, None)
        return True

    def _leave(self) -> None:
        """Give up a place; the first request that waits gets it."""
        with self._lock:
            waiting = (place for place in _popped(self._room) if place.set_running_or_notify_cancel())
            place = next(waiting, None)
            if place is None:
                self._places -= 1
                return
        place.set_result(None)

    def _entered(self, row: Sequence[bytes], timeout: float | None) -> Future[Translation]:
        """Put a line that has a place into the queue."""
        future: Future[Translation] = Future()
        service, number = self.translator.service, next(self._numbers)
        try:
            sample = self.translator.encoder.sentence(number, row)
            if sample.problem:
                future.set_result(service.left_out(sample))
                self._leave()
                return future
            with self._lock:
                self._lines[number] = _Line(sample, future, self)
            future.add_done_callback(partial(self._done, number))
        except BaseException:
            self._leave()
            raise
        seconds = self.timeout if timeout is None else timeout
        if seconds is not None:
            self._deadlines.add(future, seconds)
        try:
            added = self._job.add(service.requests(sample, number))
        except BaseException:
            future.cancel()
            raise
        if not added:
            future.cancel()
            raise _closed()
        return future

    def _done(self, number: int, future: Future[Translation]) -> None:
        """Called when the future of a line is done, whatever the reason."""
        with self._lock:
            del self._lines[number]
            self._gathered.remove(number)
        if future.cancelled() or future.exception():
            draws = self.translator.service.draws
            self._job.arriving.remove(range(number * draws, (number + 1) * draws))
        if future.cancelled():  # otherwise ``concurrent.futures.wait`` and ``as_completed`` wait for ever
            future.set_running_or_notify_cancel()
        self._leave()

    def _deliver(self, index: int, some: list[Hypothesis]) -> None:
        """Called with the hypotheses that a search has found."""
        service = self.translator.service
        with self._lock:
            line = self._lines.get(index // service.draws)
            if line is None:  # it was taken back
                return
            hypotheses = self._gathered.add(index, some)
        if hypotheses is None:
            return
        try:
            found = service.translation(line.sample, hypotheses, attention=self._attention, count=self._count)
        except Exception as error:
            self._fail(index, error)
            return
        with _finishing():
            line.future.set_result(found)

    def _fail(self, index: int, error: Exception) -> None:
        """Called with the error of a search that has failed."""
        with self._lock:
            line = self._lines.get(index // self.translator.service.draws)
        if line is not None:
            with _finishing():
                line.future.set_exception(error)


class _Deadlines:
    """Fails futures that are not done in time, in a thread that starts with the first future."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._heap: list[tuple[float, int, float, weakref.ref[Future[Translation]]]] = []
        self._most = FEW_DEADLINES
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, future: Future[Translation], seconds: float) -> None:
        """Fail ``future`` with LineTimeoutError if it is not done ``seconds`` from now."""
        entry = time.monotonic() + seconds, next(self._numbers), seconds, weakref.ref(future)
        with self._changed:
            if len(self._heap) >= self._most:  # most futures are done long before their time
                self._heap = [known for known in self._heap if (one := known[-1]()) and not one.done()]
                heapq.heapify(self._heap)
                self._most = max(FEW_DEADLINES, 2 * len(self._heap))
            heapq.heappush(self._heap, entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="mgraph-deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and (
                    not self._heap or (left := self._heap[0][0] - time.monotonic()) > 0
                ):
                    self._changed.wait(left if self._heap else None)
                if self._stopped:
                    return
                _, _, seconds, reference = heapq.heappop(self._heap)
            if future := reference():
                with _finishing():
                    future.set_exception(LineTimeoutError(f"a line was not translated in {seconds:g} s"))


def _work(job: OpenJob, number: int, settings: Callable[[], AbstractContextManager[None]]) -> None:
    with settings():
        job.run(number)


@contextmanager
def _finishing() -> Iterator[None]:
    """Finishes a future, unless it is done. ``SystemExit`` from a callback, which the future passes on, is
    logged: if it ended a thread of the queue, the other lines would wait for ever."""
    try:
        yield
    except InvalidStateError:
        pass
    except BaseException:
        logger.exception("a callback of a line's future raised this")


def _join(threads: Sequence[threading.Thread]) -> None:
    if threading.current_thread() in threads:  # two that close the queue would wait for each other
        return
    for thread in threads:
        thread.join()


def _popped(places: OrderedDict[Future[None], None]) -> Iterator[Future[None]]:
    while places:
        yield places.popitem(last=False)[0]


def _closed() -> QueueClosedError:
    return QueueClosedError("the queue is closed")


def _seconds(name: str, value: float | None) -> float | None:
    """A number of seconds from 0, or None."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value <= threading.TIMEOUT_MAX):
        raise OptionError(f"{name} must be a number of seconds from 0, or None, got {value!r}")
    return value
