"""``TranslationQueue``: lines from many threads and tasks are translated together."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import signal
import sys
import threading
import weakref
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest

from mgraph import ArgumentError
from nmt import LineTimeoutError, OptionError, QueueClosedError, QueueFullError, TranslationQueue, Translator
from nmt.search.beam_search import Job
from nmt.search.lane_sizes import LaneRows, LaneSize
from nmt.search.open_job import OVERTAKING, STEPS, Arriving, OpenJob
from nmt.search.results import Hypothesis, Translation
from nmt.search.schedule import TURN, Found, Request
from nmt.search.service import TranslationService
from nmt.search.translation_queue import FEW_DEADLINES, _Deadlines
from nmt.text.parallel import ParallelTextError
from nmt.text.sentences import LineEncoder, Sentence
from tests.helpers.fresh import python
from tests.helpers.places import DATA

SECONDS = 60
SEARCH, OPTIONS = DATA / "search", DATA / "options"
VOCABS = [str(OPTIONS / "source.yml"), str(OPTIONS / "target.yml")]
WORDS = "the a cat dog house red sees and zebra sleeps".split()
LINES = [
    " ".join(random.Random(number).choices(WORDS, k=number * 7 % 30 + 1 if number % 9 else 0))
    for number in range(60)
]


def make(model: str = "left-right", **options: object) -> Translator:
    options = {"beam_size": 2, "max_length": 40, "cpu_threads": 2} | options
    return Translator(str(SEARCH / f"{model}.npz"), VOCABS, **options)


@pytest.fixture(scope="module")
def translator() -> Translator:
    return make()


@pytest.fixture(scope="module")
def expected(translator: Translator) -> list[str]:
    return translator.translate(LINES)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until this is set, nothing is taken from queues."""
    free, real = threading.Event(), OpenJob._take

    def take(self: OpenJob, *arguments: Any, **rest: Any) -> list[Request]:
        assert free.wait(SECONDS)
        return real(self, *arguments, **rest)

    monkeypatch.setattr(OpenJob, "_take", take)
    yield free
    free.set()


def test_threads_get_what_the_translator_finds(translator: Translator, expected: list[str]) -> None:
    found: dict[int, str] = {}

    def client(first: int, queue: TranslationQueue) -> None:
        for number in range(first, len(LINES), 6):
            found[number] = queue.submit(LINES[number]).result(SECONDS).text

    with TranslationQueue(translator) as queue:
        threads = [threading.Thread(target=client, args=(k, queue)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(queue) == 0
    assert [found[number] for number in range(len(LINES))] == expected


def test_tasks_and_whole_texts_get_the_same(translator: Translator, expected: list[str]) -> None:
    async def all_at_once(queue: TranslationQueue) -> list[Translation]:
        return await asyncio.gather(*map(queue.translation, LINES))

    with TranslationQueue(translator, most_lines=7) as queue:  # so most tasks wait for room
        assert [one.text for one in asyncio.run(all_at_once(queue))] == expected
        assert queue.translate(LINES) == expected
        with pytest.raises(OptionError, match=r"1 text\(s\) are needed"):
            queue.translate(LINES, LINES)


def test_a_line_enters_while_another_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It enters the same lane, and is done first."""
    entered: list[tuple[int, int]] = []
    first, second, real = threading.Event(), threading.Event(), OpenJob._take

    def take(self: OpenJob, *arguments: Any, **rest: Any) -> list[Request]:
        if entered:
            assert second.wait(SECONDS)
        found = real(self, *arguments, **rest)
        entered.append((len(arguments[3]), len(found)))
        first.set()
        return found

    monkeypatch.setattr(OpenJob, "_take", take)
    monkeypatch.setattr(LaneRows, "of_lane", lambda *_: 4)
    one = make(force_decode=True, beam_size=1)
    one.search.searches = 1
    with TranslationQueue(one) as queue:
        long = queue.submit("the cat " * 10, "das haus " * 15)
        assert first.wait(SECONDS)
        short = queue.submit("a cat", "das")
        order: list[str] = []
        for name, future in (("long", long), ("short", short)):
            future.add_done_callback(lambda _, name=name: order.append(name))
        second.set()
    assert entered[:2] == [(0, 1), (1, 1)] and order == ["short", "long"]


@pytest.mark.slow
def test_options_that_change_what_is_searched() -> None:
    lines = LINES[:12]
    prefixes = ["das", "ein", "", "der hund"] * 3
    forced = make(force_decode=True, output_sampling=["topk", 5], seed=9, alignment="hard", n_best=True)
    expected = forced.translate(lines, prefixes)
    with TranslationQueue(forced) as queue:
        assert queue.translate(lines, prefixes) == expected
        with pytest.raises(ParallelTextError, match="the prefix ends after 3 lines"):
            queue.translate(lines, prefixes[:3])


@pytest.mark.slow
def test_attention_and_lists(translator: Translator) -> None:
    asked = {"n_best": 2, "return_attention": True}
    expected = translator.translate(LINES[:5], **asked)
    with TranslationQueue(translator, **asked) as queue:
        found = [queue.submit(line).result(SECONDS) for line in LINES[:5]]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.texts == theirs.texts and ours.attention.weights.shape == theirs.attention.weights.shape


def test_a_line_that_is_left_out_costs_nothing_else(translator: Translator, expected: list[str]) -> None:
    with TranslationQueue(translator, most_lines=2) as queue:
        for _ in range(3):
            result = queue.submit("cat " * 50).result(0)
            assert result.text == "" and result.problem.startswith("51 words with </s>")
            assert not result.hypotheses[0].finished
        assert queue.submit(LINES[1].encode() + b"\r\n").result(SECONDS).text == expected[1]
        with pytest.raises(ArgumentError, match="a line must be str or bytes, got 3"):
            queue.submit(3)
        for texts in (), ("a cat", "the cat"):
            with pytest.raises(OptionError, match=r"1 text\(s\) are needed"):
                queue.submit(*texts)
        found = queue.submit(b"\xff cat").result(SECONDS)
        assert found.problem == "" and found.attentions == ()
    assert translator.translate([]) == [] and translator.translate(["cat " * 50]) == [""]


def test_a_full_queue_refuses_or_lets_wait(translator: Translator, held: threading.Event) -> None:
    with TranslationQueue(translator, most_lines=2) as queue:
        futures = [queue.submit(line) for line in LINES[1:3]]
        for wait in 0.0, 0.01:
            with pytest.raises(QueueFullError, match=r"the queue is full: 2 line\(s\)"):
                queue.submit(LINES[3], wait=wait)
        late: list[Future[Translation]] = []
        waiting = threading.Thread(target=lambda: late.append(queue.submit(LINES[3], wait=None)))
        waiting.start()
        assert len(queue) == 2 and not late
        held.set()
        waiting.join()
        assert late[0].result(SECONDS).text and all(future.result(SECONDS).text for future in futures)


def test_what_is_taken_back_makes_room(translator: Translator, held: threading.Event) -> None:
    async def given_up(queue: TranslationQueue) -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await queue.translation("a cat")

    with TranslationQueue(translator, most_lines=1) as queue:
        asyncio.run(given_up(queue))
        assert len(queue) == 0
        future = queue.submit("the cat")
        asyncio.run(given_up(queue))  # this time while it waits for room
        with pytest.raises(QueueFullError):
            queue.submit("a cat")
        assert future.cancel() and len(queue) == 0
        assert queue._job.arriving.lengths() == {}
        held.set()
        assert queue.submit("the cat").result(SECONDS).text


@pytest.mark.parametrize("given", [False, True])
def test_a_task_whose_loop_is_closed_keeps_no_place(
    given: bool, translator: Translator, held: threading.Event
) -> None:
    async def begun(queue: TranslationQueue) -> Coroutine[Any, Any, Translation]:
        task = queue.translation("a cat")
        task.send(None)
        return task

    with TranslationQueue(translator, most_lines=1) as queue:
        first = queue.submit("the cat")
        task = asyncio.run(begun(queue))
        if given:
            assert first.cancel()
        task.close()  # as the collector does
        first.cancel()
        held.set()
        assert queue.submit("the cat").result(SECONDS).text


def test_what_is_cancelled_is_done_for_those_who_wait(translator: Translator, held: threading.Event) -> None:
    queue = TranslationQueue(translator)
    futures = [queue.submit(line) for line in LINES[1:9]]
    assert futures[0].cancel()
    assert wait_for(futures[:1], SECONDS).done
    threading.Timer(0.05, held.set).start()
    queue.close(drop=True)
    assert not wait_for(futures, 0).not_done


@pytest.mark.parametrize("draws", [1, 2])
def test_what_is_taken_back_takes_no_other_line_along(
    draws: int, translator: Translator, monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    monkeypatch.setattr(TranslationService, "draws", draws)
    with TranslationQueue(translator) as queue:
        first, second, third = (queue.submit(line) for line in LINES[1:4])
        assert second.cancel()
        assert sum(map(len, queue._job.arriving.lengths().values())) == 2 * draws
        held.set()
        assert first.result(SECONDS).text and third.result(SECONDS).text


@pytest.mark.parametrize("given", [False, True])
def test_an_interrupt_while_waiting_takes_no_place(
    given: bool, translator: Translator, held: threading.Event
) -> None:
    """Neither if there is still no room nor if the place has just been given."""

    def interrupt(*_: object) -> None:
        if given:
            assert future.cancel()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)  # a shell's background jobs ignore SIGINT
    try:
        with TranslationQueue(translator, most_lines=1) as queue:
            future = queue.submit("the cat")
            threading.Timer(0.1, signal.pthread_kill, [threading.get_ident(), signal.SIGUSR1]).start()
            with pytest.raises(KeyboardInterrupt):
                queue.submit("a cat", wait=SECONDS)
            if not given:
                with pytest.raises(QueueFullError):
                    queue.submit("a cat")
                assert future.cancel()
            held.set()
            assert queue.submit("the cat").result(SECONDS).text
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("wait", [math.inf, math.nan, -1, "long"])
def test_a_wait_that_is_no_number_of_seconds_takes_no_place(
    wait: float, translator: Translator, held: threading.Event
) -> None:
    with TranslationQueue(translator, most_lines=1) as queue:
        future = queue.submit("the cat")
        with pytest.raises(OptionError, match="wait must be a number of seconds from 0, or None"):
            queue.submit("a cat", wait=wait)
        assert future.cancel()
        held.set()
        assert queue.submit("the cat").result(SECONDS).text


def test_time_is_limited(translator: Translator, held: threading.Event) -> None:
    with TranslationQueue(translator, timeout=0.02) as queue:
        with pytest.raises(LineTimeoutError, match="not translated in 0.02 s"):
            queue.submit("a cat").result(SECONDS)
        patient = queue.submit("a cat", timeout=SECONDS)
        with pytest.raises(LineTimeoutError):
            queue.translate(["the cat", "the dog"])
        with pytest.raises(ArgumentError, match="a line must be str or bytes, got 3"):
            queue.translate(["the cat", 3], timeout=SECONDS)
        assert len(queue) == 1
        held.set()
        assert patient.result(SECONDS).text
    for wrong in -1, "soon", True, float("nan"):
        with pytest.raises(OptionError, match="timeout must be a number of seconds from 0, or None"):
            TranslationQueue(translator, timeout=wrong)
        with pytest.raises(OptionError, match="timeout must be a number of seconds from 0, or None"):
            queue.submit("a cat", timeout=wrong)
    for wrong in 0, 2.5, True:
        with pytest.raises(OptionError, match=f"most_lines must be a whole number from 1, got {wrong}"):
            TranslationQueue(translator, most_lines=wrong)
    with pytest.raises(OptionError, match="translator must be a Translator, got None"):
        TranslationQueue(None)


def test_closing_finishes_or_drops(translator: Translator, held: threading.Event) -> None:
    finished, dropped = TranslationQueue(translator), TranslationQueue(translator, most_lines=8)
    mine, theirs = ([queue.submit(line) for line in LINES[1:9]] for queue in (finished, dropped))
    outside: list[BaseException] = []

    def wait_outside() -> None:
        try:
            dropped.submit("a cat", wait=None)
        except QueueClosedError as error:
            outside.append(error)

    waiting = threading.Thread(target=wait_outside)
    waiting.start()
    threading.Timer(0.05, held.set).start()
    dropped.close(drop=True)
    finished.close()
    waiting.join()
    assert len(outside) == 1
    assert all(future.cancelled() for future in theirs)
    with pytest.raises(CancelledError):
        theirs[0].result(0)
    assert all(future.result(0).text for future in mine)
    for queue in finished, dropped:
        queue.close()
        for line in "a cat", "cat " * 50:
            with pytest.raises(QueueClosedError, match="the queue is closed"):
                queue.submit(line)
        assert len(queue) == 0


def test_several_search_threads_may_close_the_queue(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Barrier(3)

    def run(self: OpenJob, number: int) -> None:
        begin.wait(SECONDS)
        queue.close()

    monkeypatch.setattr(OpenJob, "run", run)
    queue = TranslationQueue(translator)
    begin.wait(SECONDS)
    for thread in queue._threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize("timeout", [None, 0.01])
def test_an_exit_in_a_callback_costs_no_other_line(
    timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    with TranslationQueue(make(cpu_threads=1)) as queue:
        first = queue.submit("cat " * 9, timeout=timeout)
        first.add_done_callback(lambda _: sys.exit(3))
        wait_for([first], SECONDS)
        assert queue.submit("the cat").result(SECONDS).text
        with pytest.raises(LineTimeoutError):
            queue.submit("cat " * 30, timeout=0).result(SECONDS)
    assert "SystemExit: 3" in caplog.text


def test_deadlines_of_what_is_done_are_not_kept() -> None:
    deadlines, waiting = _Deadlines(), Future[Translation]()
    deadlines.add(waiting, 0.2)
    for _ in range(3 * FEW_DEADLINES):
        future = Future[Translation]()
        future.cancel()
        deadlines.add(future, 3600)
    assert len(deadlines._heap) <= FEW_DEADLINES
    with pytest.raises(LineTimeoutError):
        waiting.result(SECONDS)
    deadlines.stop()


def test_an_error_of_a_search_costs_its_lines_only(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    real = OpenJob._sources

    def sources(self: OpenJob, shape: object, requests: list[object], bins: object) -> object:
        if any(request.index == 0 for request in requests):
            raise MemoryError("no memory for this")
        if any(request.index == 1 for request in requests):
            assert taken_back.pop().cancel()
            gone.set()
            raise MemoryError("no memory for this either")
        return real(self, shape, requests, bins)

    taken_back: list[Future[Translation]] = []
    gone = threading.Event()
    monkeypatch.setattr(OpenJob, "_sources", sources)
    with TranslationQueue(translator) as queue:
        held.set()
        with pytest.raises(MemoryError, match="no memory for this"):
            queue.submit(LINES[1]).result(SECONDS)
        held.clear()
        taken_back.append(queue.submit(LINES[1]))
        held.set()
        assert gone.wait(SECONDS)  # or the next line may be in the same search
        assert queue.submit(LINES[1]).result(SECONDS).text
    with TranslationQueue(translator) as queue:  # in the first one a lane may still be open
        monkeypatch.setattr(OpenJob, "_searched", lambda *_: (_ for _ in ()).throw(MemoryError("no lane")))
        with pytest.raises(MemoryError, match="no lane"):  # before any line is taken
            queue.submit(LINES[1]).result(SECONDS)
        assert len(queue) == 0


def test_an_error_of_the_caller_drops_the_lines(translator: Translator, held: threading.Event) -> None:
    with pytest.raises(ZeroDivisionError), TranslationQueue(translator) as queue:
        future = queue.submit("a cat")
        threading.Timer(0.05, held.set).start()
        raise ZeroDivisionError
    assert future.cancelled()


@pytest.mark.parametrize("owner, name", [(LineEncoder, "sentence"), (OpenJob, "add")])
def test_an_error_before_the_search_leaves_no_line(
    owner: type, name: str, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("no memory for this")

    with TranslationQueue(translator, most_lines=1) as queue:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fails)
            with pytest.raises(MemoryError, match="no memory for this"):
                queue.submit("a cat")
        assert len(queue) == 0 and queue.submit("a cat").result(SECONDS).text
        monkeypatch.setattr(OpenJob, "add", lambda *_: False)  # as if it was closed just now
        with pytest.raises(QueueClosedError, match="the queue is closed"):
            queue.submit("a cat")
        assert len(queue) == 0


def test_who_waits_first_is_first(translator: Translator, held: threading.Event) -> None:
    async def all_at_once(queue: TranslationQueue, inside: Future[Translation]) -> list[int]:
        tasks = [asyncio.create_task(queue.translation("a cat")) for _ in range(3)]
        await asyncio.sleep(0)  # now all wait
        assert inside.cancel()
        held.set()
        return [(await task).line for task in tasks]

    with TranslationQueue(translator, most_lines=1) as queue:
        assert asyncio.run(all_at_once(queue, queue.submit("a cat"))) == [1, 2, 3]


def test_an_error_in_choosing_costs_its_line_only(
    translator: Translator, expected: list[str], monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    """Such as that of a utility; in the same lane are another line and one that is taken back just then."""
    real = TranslationService.translation

    def translation(self: TranslationService, sample: Sentence, *rest: Any, **more: Any) -> Translation:
        if sample.line == 0:
            futures[0].cancel()
        if sample.line == 1:
            raise MemoryError("no memory to choose")
        return real(self, sample, *rest, **more)

    monkeypatch.setattr(TranslationService, "translation", translation)
    monkeypatch.setattr(TranslationService, "draws", 2)
    with TranslationQueue(translator) as queue:
        futures = [queue.submit(LINES[1]) for _ in range(3)]
        held.set()
        with pytest.raises(MemoryError, match="no memory to choose"):
            futures[1].result(SECONDS)
        assert futures[2].result(SECONDS).text == expected[1] and futures[0].cancelled()


def test_the_callers_settings_hold_in_the_search_threads(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(OpenJob, "run", lambda *_: seen.append(jax.config.jax_debug_nans))
    with jax.debug_nans(True):
        TranslationQueue(translator).close()
    assert seen and all(seen)


def test_a_queue_that_nobody_has_is_closed(translator: Translator) -> None:
    def threads() -> list[threading.Thread]:
        names = "mgraph-queue", "mgraph-deadlines"
        return [thread for thread in threading.enumerate() if thread.name in names]

    before = threads()  # a queue closed just before may not have ended its own yet
    queue = TranslationQueue(translator, timeout=SECONDS)
    reference = weakref.ref(queue)
    futures = [queue.submit(line) for line in LINES[:4]]
    mine = [thread for thread in threads() if thread not in before]
    assert len(mine) > 1, "those of searches and that of deadlines"
    del queue
    assert not wait_for(futures, SECONDS).not_done
    del futures
    gc.collect()
    for thread in mine:
        thread.join(SECONDS)
    assert reference() is None and not any(thread.is_alive() for thread in mine)


ENDING = """
import sys
from nmt import TranslationQueue, Translator
queue = TranslationQueue(Translator(sys.argv[1], sys.argv[2:], beam_size=2), timeout=600)
first = queue.submit("the cat").result()
for number in range(200):
    queue.submit("the cat " * (number % 10))
print("ended")
"""


@pytest.mark.slow
def test_a_process_ends_while_lines_wait() -> None:
    assert python(ENDING, str(SEARCH / "left-right.npz"), *VOCABS, JAX_PLATFORMS="cpu") == "ended\n"


def test_a_line_for_which_nothing_is_found_is_an_empty_translation(
    translator: Translator, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a file's later lines nor a queue's future wait for it for ever."""
    real, hopeless = Job._hypotheses, translator.source_vocabs[0].encode(LINES[1])

    def hypotheses(self: Job, request: Request, *rest: Any) -> list[Hypothesis]:
        return [] if list(request.sources[0]) == hopeless else real(self, request, *rest)

    monkeypatch.setattr(Job, "_hypotheses", hypotheses)
    wanted = [expected[0], "", *expected[2:5]]
    assert translator.translate(LINES[:5]) == wanted
    problems = [found.problem for found in translator.translations(LINES[:3])]
    assert problems == ["", "the search found no translation", ""]
    with TranslationQueue(translator, timeout=SECONDS) as queue:
        assert queue.translate(LINES[:5]) == wanted


SHORT, LONG = LaneSize(24, 56, 112), LaneSize(48, 88, 176)


def request(index: int, length: int = 3) -> Request:
    return Request(index, ([0] * length,), 50)


def a_job(suits: int = 8) -> OpenJob:
    """A job without models, for whose lanes so many rows are best."""
    search: Any = SimpleNamespace(
        beam_size=2,
        searches=3,
        count=1,
        streams=1,
        rules=None,
        rows=SimpleNamespace(sizes=[1, 4, 64], of_lane=lambda *given: suits if given[2] == 3 else 0),
        sizes=lambda _: [SHORT, LONG],
        bins=lambda *_: None,
        candidates=lambda requests: 0 if requests[0].candidates is None else len(requests[0].candidates),
        listed=lambda *_: 7,
    )
    return OpenJob(search, forced=False, attention=False, count=1, found=print, failed=print)


@pytest.mark.parametrize(
    ("rows", "held", "waiting", "suits", "taken"),
    [
        (4, 1, 5, 8, 0),
        (4, 1, 5, 4, 5),
        (4, 1, 4, 8, 4),
        (4, 0, 5, 8, 5),
        (64, 9, 65, 8, 65),
        (64, 1, 7, 8, 0),
        (64, 1, 7, 64, 7),
        (64, 1, 8, 8, 8),
        (64, 1, 0, 8, 1),
    ],
    ids="crowded suits-still room empty largest lonely suits-too company shorter".split(),
)
def test_a_lane_takes_no_more_if_another_number_of_rows_is_better(
    rows: int, held: int, waiting: int, suits: int, taken: int
) -> None:
    """If many wait or few are left; if none waits, one of a shorter lane may enter."""
    job = a_job(suits)
    shape = cast(Any, SimpleNamespace(rows=rows, waiting=99, candidates=0))
    inside = [request(500 + index, 40) for index in range(held)]
    assert job.add([request(index, 40) for index in range(waiting)] or [request(0)])
    assert len(job._take(LONG, shape, lambda _: True, inside, False)) == taken


def test_a_lane_that_is_never_empty_makes_way_for_sentences_of_earlier_turns() -> None:
    """Otherwise a sentence of another lane would wait as long as others arrive."""
    job, shape = a_job(), cast(Any, SimpleNamespace(rows=64, waiting=9999, candidates=0))
    lengths = [3] * 2 * TURN + [40] * TURN + [3] * TURN
    assert job.add([request(index, length) for index, length in enumerate(lengths)])

    def taken(size: LaneSize) -> set[int]:
        found = job._take(size, shape, lambda _: True, [request(9999)] * 9, False)
        return {one.index // TURN for one in found}

    assert job.arriving.next_lane() == SHORT, "has the earliest turn"
    assert [taken(SHORT), taken(SHORT)] == [{0, 1}, set()]
    job.arriving.leave(SHORT)
    assert job.arriving.next_lane() == LONG, "has the earliest turn of those left"
    assert taken(SHORT) == {3}, "another search takes the others"


def test_a_lane_that_holds_many_sentences_makes_way_later() -> None:
    """Its rows fall idle one by one meanwhile, which may take longer than a turn on a GPU."""
    job, shape = a_job(), cast(Any, SimpleNamespace(rows=64, waiting=9999, candidates=0))
    assert job.add([request(0, 40), *(request(index) for index in range(TURN, 5 * TURN))])
    found = job._take(SHORT, shape, lambda _: True, [request(9999)] * (3 * TURN // OVERTAKING), False)
    assert {one.index // TURN for one in found} == {1, 2}


def test_a_lane_of_one_row_leaves_others_to_their_lanes() -> None:
    """They would be searched one by one after an unusually long translation, as long as they are long."""
    job, whole = a_job(), LaneSize(48, 600, 1200)
    assert job.add([request(0, 20), request(1, 20)])
    for rows, taken in (1, 0), (2, 1):
        shape = cast(Any, SimpleNamespace(rows=rows, waiting=1, candidates=0))
        assert len(job._take(whole, shape, lambda _: True, [request(9, 40)], True)) == taken


def test_what_finds_no_room_in_a_lane_is_not_overtaken_by_later_turns() -> None:
    job, shape = a_job(), cast(Any, SimpleNamespace(rows=64, waiting=1000, candidates=2))
    many = Request(TURN, ([0] * 5,), 50, candidates=np.arange(3))
    few = [Request(index, ([0] * 4,), 50, candidates=np.arange(1)) for index in range(TURN + 1, 3 * TURN)]
    assert job.add([many, *few])
    found = job._take(SHORT, shape, lambda _: True, few[:9], False)
    assert {one.index // TURN for one in found} == {1} and many not in found


def test_a_sentence_with_more_candidates_than_a_lane_has_room_for_waits() -> None:
    job, shape = a_job(), SimpleNamespace(rows=4, waiting=99, candidates=2)
    lists = [None, np.arange(1), np.arange(2), np.arange(3)]
    assert job.add([Request(k, ([0] * (9 - k),), 50, candidates=some) for k, some in enumerate(lists)])
    found = job._take(SHORT, cast(Any, shape), lambda one: one.index != 1, [], False)
    assert [one.index for one in found] == [0, 2]
    assert [one.index for one in job.arriving.requests(SHORT)] == [1, 3]


def test_rows_and_words_of_a_lane_that_is_opened() -> None:
    job = a_job()
    assert job.add([request(0)])
    whole = LaneSize(24, 600, 1200)
    assert (job._opened(SHORT, [request(0)]).rows, job._opened(whole, [request(0)]).rows) == (8, 1)
    listing = Request(1, ([0],), 50, candidates=np.array([1, 2]))
    shapes = [job._opened(SHORT, [one]) for one in (request(0), listing)]
    assert [(shape.candidates, shape.listed) for shape in shapes] == [(0, 0), (2, 7)]
    assert job._until(SHORT, 5, 2) == (2, STEPS)
    assert [job._until(LONG, living, 2) for living in (5, 0)] == [(4, STEPS), (0, STEPS)], "none waits"


def test_a_lane_ends_once_its_job_is_stopped() -> None:
    job, turns = a_job(), iter([[(0, [])], [(1, [])], [(2, [])]])
    found: list[int] = []

    def stopping(index: int, _: list[Hypothesis]) -> None:
        found.append(index)
        if index == 1:
            job.arriving.stop()

    job._found = stopping
    job._report(turns)
    assert found == [0, 1] and next(turns) == [(2, [])]


@pytest.mark.parametrize("fails", [False, True])
def test_a_lane_that_has_ended_has_no_search(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next searches would take less than their share, and leave sentences to it."""
    job, ended = a_job(), list[int]()

    def searched(_: object, size: LaneSize, *rest: object) -> Iterator[Found]:
        yield [(one.index, []) for one in job.arriving.take(size, 1)]
        if fails:
            raise MemoryError("no memory for this")

    monkeypatch.setattr(job, "_searched", searched)
    monkeypatch.setattr(job, "_found", lambda index, _: ended.append(index))
    monkeypatch.setattr(job, "_failed", lambda index, _: ended.append(index))
    assert job.add([request(0), request(1, 40), request(2)])
    job.arriving.close()
    assert not job.add([request(3)])
    job.run(0)
    assert set(ended) == {0, 1, 2} and not job.arriving.lengths()
    assert not any(job.arriving._searches.values())


def test_early_sentences_do_not_wait_for_longer_ones_that_arrive_later() -> None:
    arriving, first = Arriving(2), 5 * TURN
    assert arriving.add((LONG, request(first + index, 3 + index % 40)) for index in range(2 * TURN))
    turns = [one.index // TURN for one in arriving.requests(LONG)]
    assert turns == [5] * TURN + [6] * TURN


def test_sentences_that_wait_are_dropped_by_their_indices() -> None:
    arriving = Arriving(2)
    size, whole = SHORT, LONG
    requests = [Request(index, ([0] * (3 + index % 4),), 50) for index in range(60)]
    assert arriving.add((size, request) for request in requests)
    arriving.remove(range(10, 30))
    left = [request.index for request in arriving.requests(size)]
    assert sorted(left) == [*range(10), *range(30, 60)]
    assert arriving.next_lane() == size
    taken = [request.index for request in arriving.take(size, 8)]
    assert taken == left[:8] and list(arriving._places) == sorted(left[8:])
    arriving.remove([*taken, 99])
    arriving.again(requests[taken[0]], whole)
    arriving.remove([taken[0], left[8]])
    assert [request.index for request in arriving.requests(size)] == left[9:]
    assert arriving.requests(whole) == []


def test_a_search_finds_nothing_in_queues_that_were_stopped_meanwhile() -> None:
    arriving, size = Arriving(2), SHORT
    assert arriving.add([(size, request(0))]) and arriving.next_lane() == size
    arriving.stop()
    assert arriving.take(size, 8) == [] and arriving.next_lane() is None and not arriving._places
