"""Which search takes which sentence, and searches that run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import jax
import pytest

from mgraph import callers_settings
from nmt.search.lane_sizes import FEW_ROWS, LaneSize
from nmt.search.schedule import (
    FIRST,
    MOST_SEARCHES,
    MOST_TRIES,
    TURN,
    Found,
    Request,
    Searches,
    Waiting,
    searches_at_once,
)
from nmt.text.packing import Bins

SECONDS = 60
SHORT, LONG, LONGEST = LaneSize(24, 56, 112), LaneSize(48, 88, 176), LaneSize(104, 150, 300)


def request(index: int, length: int, limit: int = 50) -> Request:
    return Request(index, ([0] * length,), limit)


def test_searches_take_the_longest_first_and_go_on_to_the_shorter() -> None:
    short = [request(FIRST + i, 5 + i) for i in range(20)]
    long = [request(FIRST + 20, 40), request(FIRST + 21, 41)]
    waiting = Waiting([*short, *long], [SHORT, LONG], beam=2)
    assert waiting.lengths() == {SHORT: [*range(24, 4, -1)], LONG: [41, 40]}
    assert waiting.next_lane() == LONG
    assert waiting.next_lane() == SHORT, "two sentences need no second search"
    assert [r.index - FIRST for r in waiting.take(SHORT, 3)] == [19, 18, 17]
    assert [r.index - FIRST for r in waiting.take(LONG, 3)] == [21, 20], (
        "the short ones have a lane of their own"
    )
    assert waiting.take(LONG, 3) == []
    assert [r.index - FIRST for r in waiting.take(LONG, 2, full=True)] == [16, 15], (
        "which is not worth waiting for"
    )
    assert waiting.next_lane() == SHORT
    assert len(waiting.take(SHORT, 99)) == 8, "half of them are left for the other search"
    assert [r.index - FIRST for r in waiting.take(LONG, 9)] == [6, 5, 4, 3, 2, 1, 0], "the last few come here"
    assert waiting.next_lane() is None


def test_a_lane_with_few_sentences_has_one_search() -> None:
    few, many = [request(i, 40) for i in range(FEW_ROWS)], [request(i, 9) for i in range(FEW_ROWS + 1)]
    waiting = Waiting([*few, *many], [SHORT, LONG], beam=2)
    assert [waiting.next_lane() for _ in range(4)] == [LONG, SHORT, SHORT, SHORT]
    waiting = Waiting([*few, request(FEW_ROWS, 40), *many], [SHORT, LONG], beam=2)
    assert [waiting.next_lane() for _ in range(4)] == [LONG, SHORT, LONG, SHORT], "the others take turns"
    waiting = Waiting(few, [LONG], beam=2)
    assert [waiting.next_lane() for _ in range(2)] == [LONG, LONG], "rather than do nothing"


def test_the_longest_source_determines_the_lane() -> None:
    waiting = Waiting([Request(0, ([0] * 5, [0] * 40, [0] * 9), 50)], [SHORT, LONG], beam=2)
    assert waiting.lengths() == {LONG: [40]}


def test_a_lane_waits_for_what_fits_into_it() -> None:
    long = Waiting([request(0, 40)], [SHORT, LONG], beam=2)
    assert long.empty(SHORT) and long.take(SHORT, 9) == []
    waiting = Waiting([request(0, 5), request(1, 40)], [SHORT, LONG], beam=2)
    assert not waiting.empty(SHORT) and not waiting.empty(LONG)
    assert waiting.next_lane() == LONG
    assert len(waiting.take(LONG, 1)) == 1
    assert not waiting.empty(LONG), "the short one fits, too"
    assert waiting.next_lane() == SHORT
    assert len(waiting.take(SHORT, 1)) == 1
    assert waiting.empty(SHORT) and waiting.empty(LONG)


@pytest.mark.parametrize(("most", "taken"), [(4, 2), (5, 5)])
def test_shorter_ones_enter_if_there_is_room_for_all_beside_those_of_the_lane(most: int, taken: int) -> None:
    requests = [request(i, 40 if i < 2 else 5) for i in range(5)]
    waiting = Waiting(requests, [SHORT, LONG], beam=2)
    assert waiting.next_lane() == LONG
    assert len(waiting.take(LONG, most)) == taken


def test_a_full_lane_goes_on_with_the_longest_of_the_others() -> None:
    lengths = [5] * 5 + [30] * 3 + [40]
    sizes = [SHORT, LaneSize(36, 72, 144), LONG]
    waiting = Waiting([request(i, length) for i, length in enumerate(lengths)], sizes, beam=2)
    assert waiting.next_lane() == LONG
    assert [r.length for r in waiting.take(LONG, 1)] == [40]
    assert [r.length for r in waiting.take(LONG, 4, full=True)] == [30, 30, 30, 5]


def test_a_search_that_has_left_leaves_its_share() -> None:
    waiting = Waiting([request(i, 9) for i in range(4 * FEW_ROWS)], [SHORT], beam=2)
    assert [waiting.next_lane() for _ in range(3)] == [SHORT] * 3
    waiting.leave(SHORT)
    assert len(waiting.take(SHORT, 99)) == 2 * FEW_ROWS
    waiting.leave(SHORT)
    assert len(waiting.take(SHORT, 99)) == 2 * FEW_ROWS


def test_early_lines_do_not_wait_for_longer_ones_far_behind() -> None:
    early = [request(i, 5 + i % 7) for i in range(TURN)]
    late = [request(TURN + i, 20) for i in range(TURN)]
    waiting = Waiting([*late, *early], [SHORT], beam=2)
    assert waiting.next_lane() == SHORT
    assert {r.index for r in waiting.take(SHORT, FIRST)} == set(range(FIRST))
    rest = waiting.take(SHORT, TURN - FIRST)
    assert {r.index for r in rest} == set(range(FIRST, TURN))
    assert [r.length for r in rest] == sorted((r.length for r in rest), reverse=True)
    assert waiting.take(SHORT, 9) == late[:9]


def test_the_last_turn_ends_with_its_shortest() -> None:
    waiting = Waiting([request(i, 5 + i % 7) for i in range(3 * TURN - 1)], [SHORT], beam=2)
    assert waiting.next_lane() == SHORT
    assert {r.index for r in waiting.take(SHORT, TURN)} == set(range(TURN)), (
        "the others are less than two turns"
    )
    lengths = [r.length for r in waiting.take(SHORT, 3 * TURN)]
    assert len(lengths) == 2 * TURN - 1 and lengths == sorted(lengths, reverse=True)
    waiting = Waiting([request(i, 5 + i % 7) for i in range(2 * TURN - 1)], [SHORT], beam=2)
    assert {r.index for r in waiting.take(SHORT, FIRST)} == set(range(FIRST))
    lengths = [r.length for r in waiting.take(SHORT, 2 * TURN)]
    assert lengths == sorted(lengths, reverse=True), "less than two turns are one"


def test_the_longest_that_fits_is_taken_next() -> None:
    waiting = Waiting([request(i, n) for i, n in enumerate([9, 7, 7, 6, 4, 3])], [SHORT], beam=2)
    for expected, tries in (([9], 5), ([7, 3], 5), ([7], 3), ([6, 4], 2), ([], 0)):
        bins, tried = Bins(1, 10), []

        def fits(request: Request, bins: Bins = bins, tried: list[int] = tried) -> bool:
            tried.append(request.length)
            if found := bins.find(request.length) is not None:
                bins.add(request.length)
            return found

        assert [r.length for r in waiting.take(SHORT, 3, fits)] == expected
        assert len(tried) == tries, "not the other one of 7 words"


def test_tries_are_limited() -> None:
    lengths = range(MOST_TRIES + 10, 0, -1)
    waiting = Waiting([request(FIRST + i, length) for i, length in enumerate(lengths)], [LONGEST], beam=2)
    tried: list[int] = []
    assert waiting.take(LONGEST, 9, lambda r: bool(tried.append(r.length))) == []
    assert tried == list(lengths)[:MOST_TRIES]
    assert waiting.lengths() == {LONGEST: list(lengths)}, "all wait in the same order"


def test_a_sentence_without_room_is_searched_again_where_there_is() -> None:
    waiting = Waiting([request(0, 5, 60), request(1, 5, 500)], [SHORT, LONG, LONGEST], beam=2)
    first, second = waiting.take(SHORT, 2)
    whole = LaneSize(24, 600, 1200)
    waiting.again(first, whole)
    assert waiting.next_lane() == LONG
    assert waiting.take(LONG, 9) == [first]
    waiting.again(second, whole)
    assert waiting.next_lane() == whole, "no other lane has room for 500 words"
    scarce = LaneSize(24, 56, 90)
    waiting = Waiting([request(0, 5, 50)], [scarce, LONG], beam=2)
    waiting.again(*waiting.take(scarce, 1), whole)
    assert waiting.lengths() == {LONG: [5]}, "two hypotheses of 50 words need 100 places"


def test_each_gpu_has_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does the one that JAX chose."""
    monkeypatch.setattr("nmt.search.schedule.platform_of", lambda device: "gpu")
    assert [searches_at_once(4, devices) for devices in (0, 1, 2)] == [1, 1, 2]


def test_each_core_has_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.search.schedule.platform_of", lambda device: "cpu")
    monkeypatch.setattr("nmt.search.schedule.cores", lambda: 99)
    assert [searches_at_once(*given) for given in ((), (1,), (3,), (3, 9))] == [MOST_SEARCHES, 1, 3, 9]


def test_searches_run_at_once() -> None:
    together = threading.Barrier(3)

    def search(number: int) -> Iterator[Found]:
        together.wait(SECONDS)
        yield [(threading.get_ident(), [])]

    found = [i for part in Searches(3, callers_settings()).run(search) for i, _ in part]
    assert len(set(found)) == 3


def test_a_single_search_needs_no_thread() -> None:
    def search(number: int) -> Iterator[Found]:
        yield [(number, [])]
        yield [(threading.get_ident(), [])]

    found = list(Searches(1, callers_settings()).run(search))
    assert found == [[(0, [])], [(threading.get_ident(), [])]]


@pytest.mark.parametrize("searches", [1, 3])
def test_an_error_ends_all_searches(searches: int) -> None:
    turns: list[int] = []

    def search(number: int) -> Iterator[Found]:
        for turn in range(1_000_000):
            turns.append(turn)
            if turn == 3 and number == 0:
                raise RuntimeError("no memory")
            yield []

    with pytest.raises(RuntimeError, match="no memory"):
        for _ in Searches(searches, callers_settings()).run(search):
            pass
    assert len(turns) < 1_000_000


@pytest.mark.parametrize("searches", [1, 3])
def test_who_takes_no_more_stops_the_searches(searches: int) -> None:
    ended = []

    def search(number: int) -> Iterator[Found]:
        try:
            while True:
                yield []
        finally:
            ended.append(True)

    found = Searches(searches, callers_settings()).run(search)
    next(found)
    found.close()
    assert len(ended) == searches


def test_the_callers_settings_hold_in_all_threads() -> None:
    seen = set()

    def search(number: int) -> Iterator[Found]:
        seen.add((jax.config.values["jax_default_matmul_precision"], str(jax.numpy.zeros(1).device)))
        yield []

    device = jax.devices()[-1]
    with jax.default_matmul_precision("float32"), jax.default_device(device):
        for _ in Searches(3, callers_settings()).run(search):
            pass
    assert seen == {("float32", str(device))}
