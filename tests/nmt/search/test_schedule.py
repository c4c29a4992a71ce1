"""Which lanes there are, who takes which sentence, and searches at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgraph import callers_settings
from nmt.search.schedule import (
    MOST_DOORS,
    MOST_LANES,
    PROGRAM,
    Found,
    LaneRows,
    LaneSize,
    Lengths,
    Request,
    Searches,
    Waiting,
    choose_doors,
    choose_lanes,
    lane_length,
)
from nmt.text.packing import Bins

SECONDS = 60
SHORT, LONG = LaneSize(24, 56, 112), LaneSize(48, 88, 176)


def request(index: int, length: int, limit: int = 50) -> Request:
    return Request(index, ([0] * length,), limit)


def test_lanes_double() -> None:
    assert [lane_length(n) for n in (1, 24, 25, 49, 104, 105, 209, 1000)] == [
        24,
        24,
        48,
        104,
        104,
        208,
        416,
        1664,
    ]


def test_lanes_have_few_sizes() -> None:
    sizes = {beam: LaneRows(beam, "cpu").sizes for beam in (1, 4, 6, 12)}
    assert sizes == {1: [1, 8, 16, 32, 64], 4: [1, 4, 8, 16, 32], 6: [1, 2, 5, 10, 21], 12: [1, 2, 5, 10]}


def test_lanes_have_many_rows_only_if_they_stay_busy() -> None:
    def rows(lengths: list[int]) -> int:
        return LaneRows(4, "cpu").of_lane(LONG, lengths, searches=2)

    assert rows([20]) == 1
    assert rows([80, *[25] * 15]) == 4, "with more, most are idle while the longest goes on"
    assert rows([80, *[25] * 63]) == 8
    assert rows([80, *[25] * 900]) == 32
    assert LaneRows(4, "gpu").of_lane(LONG, [80, *[25] * 63], searches=1) == 32


def test_a_lane_with_other_rows_is_made_when_it_pays() -> None:
    some = LaneRows(4, "cpu")
    assert some.of_lane(LONG, [25] * 900, searches=2) == 32
    used = [some.of_lane(LONG, [30], searches=2) for _ in range(20)]
    assert used == sorted(used, reverse=True) and set(used) == {32, 1}, "first what there is"
    assert some.of_lane(SHORT, [20], searches=2) == 1, "another lane has its own"
    assert some.of_lane(LONG, [25] * 900, searches=2) == 32


@given(
    lengths=st.dictionaries(st.integers(1, 900), st.integers(1, 500), min_size=1, max_size=20),
    known=st.sets(st.sampled_from([24, 48, 104, 208, 416, 832])),
)
def test_every_sentence_has_a_lane_and_there_are_few(lengths: dict[int, int], known: set[int]) -> None:
    chosen = choose_lanes(Counter(lengths), known)
    assert chosen == sorted(set(chosen)) and len(chosen) <= MOST_LANES
    assert chosen[-1] >= max(lengths)
    doors = choose_doors(Counter(lengths), chosen[-1])
    assert doors[-1] == chosen[-1] and len(doors) <= MOST_DOORS
    assert choose_lanes(Counter(lengths), chosen) == chosen, "what is compiled stays good"


def test_a_lane_is_made_when_it_pays() -> None:
    few, some, many = (
        Counter({10: 5, 90: 1}),
        Counter({10: PROGRAM // 3, 90: 50}),
        Counter({10: 5 * PROGRAM, 90: 5 * PROGRAM}),
    )
    assert choose_lanes(few) == [104], "one lane serves a few lines"
    assert choose_lanes(few, [24, 104]) == [24, 104]
    assert choose_lanes(few, [208]) == [208], "a longer one that is compiled is good enough"
    assert choose_lanes(many) == [24, 104]
    assert choose_lanes(some) == [24, 104]
    assert choose_lanes(some, [208]) == [208], "what exists serves for longer"
    assert choose_lanes(many, [208]) == [24, 104]


def test_doors_are_as_narrow_as_pays() -> None:
    lengths = Lengths()
    assert lengths.lanes([5, 6]) == [24]
    assert [lengths.door(24, n) for n in (3, 20, 24)] == [24, 24, 24], "one serves a few lines"
    assert lengths.lanes([10] * 20_000 + [24]) == [24]
    assert [lengths.door(24, n) for n in (3, 12, 13, 24)] == [16, 16, 16, 24]
    assert lengths.lanes([100]) == [104]
    assert lengths.door(104, 3) == 104
    assert lengths.door(416, 3) == 416, "a lane that nothing is known of has one door"


def test_searches_take_the_longest_first_and_go_on_to_the_shorter() -> None:
    short = [request(i, 5 + i) for i in range(20)]
    long = [request(20, 40), request(21, 41)]
    waiting = Waiting([*short, *long], [SHORT, LONG], beam=2)
    assert waiting.lengths() == {SHORT: [*range(24, 4, -1)], LONG: [41, 40]}
    assert waiting.next_lane() == LONG
    assert waiting.next_lane() == SHORT, "two sentences need no second search"
    assert [r.index for r in waiting.take(SHORT, 3)] == [19, 18, 17]
    assert [r.index for r in waiting.take(LONG, 3)] == [21, 20], "the short ones have a lane of their own"
    assert waiting.take(LONG, 3) == []
    assert [r.index for r in waiting.take(LONG, 2, full=True)] == [16, 15], "which is not worth waiting for"
    assert waiting.next_lane() == SHORT
    assert len(waiting.take(SHORT, 99)) == 8, "half of them are left for the other search"
    assert [r.index for r in waiting.take(LONG, 9)] == [6, 5, 4, 3, 2, 1, 0], "the last few come here"
    assert waiting.next_lane() is None


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


def test_a_sentence_without_room_is_searched_again_where_there_is() -> None:
    waiting = Waiting([request(0, 5, 60), request(1, 5, 500)], [SHORT, LONG], beam=2)
    first, second = waiting.take(SHORT, 2)
    whole = LaneSize(24, 600, 1200)
    waiting.again(first, whole)
    assert waiting.next_lane() == LONG
    assert waiting.take(LONG, 9) == [first]
    waiting.again(second, whole)
    assert waiting.next_lane() == whole, "no other lane has room for 500 words"


def test_searches_run_at_once() -> None:
    together = threading.Barrier(3)

    def search(number: int) -> Iterator[Found]:
        together.wait(SECONDS)
        yield [(threading.get_ident(), [])]

    found = [i for part in Searches(3, callers_settings()).run(search) for i, _ in part]
    assert len(set(found)) == 3


@pytest.mark.parametrize("searches", [1, 3])
def test_an_error_ends_all_searches(searches: int) -> None:
    turns: list[int] = []

    def search(number: int) -> Iterator[Found]:
        for turn in range(1_000_000):
            turns.append(turn)
            if turn == 3:
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
