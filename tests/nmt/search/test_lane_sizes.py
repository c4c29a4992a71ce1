"""Which lanes a search has for which sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.search import lane_sizes
from nmt.search.lane_sizes import (
    MOST_LANES,
    MOST_PROGRAMS,
    PROGRAM,
    LaneRows,
    LaneSize,
    Lengths,
    choose_lanes,
    lane_length,
)

SHORT, LONG = LaneSize(24, 56, 112), LaneSize(48, 88, 176)


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


def test_a_sentence_alone_is_not_padded_to_its_lane() -> None:
    lengths = Lengths()
    assert lengths.lanes([100]) == [104]
    assert [lengths.row_door(104, n) for n in (1, 52, 53, 104)] == [52, 52, 104, 104]
    assert lengths.lanes([150]) == [208]
    assert [lengths.row_door(104, 1), lengths.row_door(208, 1)] == [104, 208], (
        "a second lane has programs, too"
    )
    short = Lengths()
    assert short.lanes([20, 40]) == [48] and short.row_door(48, 3) == 48


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
    assert LaneRows(4, "gpu").of_lane(LONG, [80, *[25] * 63], searches=1) == 64


def test_rows_fit_into_the_memory_of_a_gpu() -> None:
    """Fewer rows of longer lanes fit."""

    def rows(lane: LaneSize, gigabytes: float) -> int:
        lengths = [lane.length] * 5000
        return LaneRows(4, "gpu", gigabytes * 2**30).of_lane(lane, lengths, searches=1)

    assert [rows(LONG, gigabytes) for gigabytes in (0.1, 8, 16, 64, 1000)] == [1, 64, 128, 512, 512]
    assert [rows(LaneSize(length, 600, 1200), 64) for length in (104, 208, 832)] == [512, 256, 64]


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


def test_a_gpu_has_fewer_lanes_and_sizes_because_programs_take_it_longer() -> None:
    text = [10] * 5_000 + [40] * 1_000
    assert [Lengths(platform).lanes(text) for platform in ("cpu", "gpu")] == [[24, 48], [48]]
    assert Lengths("gpu").lanes(20 * text) == [24, 48]
    some = LaneRows(4, "gpu")
    assert some.of_lane(LONG, [25] * 60, searches=1) == 64
    used = [some.of_lane(LONG, [25] * 2_000, searches=1) for _ in range(3)]
    assert used == [64, 64, 512], "until 1,500 steps are wasted"
    assert some.of_lane(LONG, [25] * 60, searches=1) == 64


def doors(lengths: Lengths, lanes: Iterable[int]) -> dict[int, set[int]]:
    """The doors of each lane."""
    return {lane: {lengths.door(lane, n) for n in range(1, lane + 1)} for lane in lanes}


def test_doors_are_as_narrow_as_pays() -> None:
    lengths = Lengths()
    assert lengths.lanes([5, 6]) == [24]
    assert [lengths.door(24, n) for n in (3, 20, 24)] == [24, 24, 24], "one serves a few lines"
    assert lengths.lanes([10] * 20_000 + [24]) == [24]
    assert [lengths.door(24, n) for n in (3, 12, 13, 24)] == [16, 16, 16, 24]
    assert lengths.lanes([100]) == [104]
    assert lengths.door(104, 3) == 104
    assert lengths.door(416, 3) == 416, "a lane that nothing is known of has one door"


def test_lengths_are_not_chosen_for_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 different ones, that would take a queue 20 milliseconds a line."""
    lengths, chosen = Lengths(), list[int]()

    def choosing(seen: Counter[int], *rest: Any) -> list[int]:
        chosen.append(seen.total())
        return choose_lanes(seen, *rest)

    monkeypatch.setattr(lane_sizes, "choose_lanes", choosing)
    for number in range(1000):
        assert lengths.lanes([number % 24 + 1]) == [24]
    assert chosen[:5] == [1, 2, 3, 4, 5] and len(chosen) < 60
    assert lengths.lanes([30]) == [48] and chosen[-1] == 1001, "a longer one has no lane yet"


def test_shorter_texts_after_many_long_ones_soon_have_their_own_lane() -> None:
    lengths = Lengths()
    lengths.lanes([400] * 100_000)
    assert [lengths.lanes([15] * 100) for _ in range(25)][-1] == [24]


@given(st.dictionaries(st.integers(1, 400), st.integers(1, 50_000), min_size=1, max_size=8))
def test_lanes_and_doors_make_few_programs(counts: dict[int, int]) -> None:
    lengths = Lengths()
    made = doors(lengths, lengths.lanes(Counter(counts).elements()))
    assert max(made) >= max(counts) and all(max(own) == lane for lane, own in made.items())
    assert len(made) + sum(map(len, made.values())) <= MOST_PROGRAMS


def test_doors_stay_when_a_longer_lane_comes() -> None:
    lengths = Lengths()
    before = doors(lengths, lengths.lanes([20] * 150 + [45] * 100 + [90] * 40))
    assert max(map(len, before.values())) > 1
    assert max(lengths.lanes([300] * 3_000)) > max(before)
    after = doors(lengths, before)
    assert all(own <= after[lane] for lane, own in before.items())
