"""Scoring with few programs: which batches are made, and that they change no score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mgraph
from nmt.files import create_model
from nmt.models import Model
from nmt.search import few_batches
from nmt.search.few_batches import FEW_ROWS, MOST_LENGTHS, POSITIONS, FewBatches
from nmt.search.scoring import Scoring, Streams, score
from tests.helpers.small_models import TRANSFORMER

WORDS = 13


@pytest.fixture(scope="module")
def model() -> Model:
    return create_model(TRANSFORMER)


def pairs(lengths: Sequence[tuple[int, int]]) -> list[Streams]:
    rng = np.random.default_rng(len(lengths))
    return [tuple([*rng.integers(2, 11, length - 1).tolist(), 0] for length in pair) for pair in lengths]


def mixed(count: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(7)
    lengths = np.clip(rng.lognormal(3, 0.6, (count, 1)) + rng.normal(0, 2, (count, 2)), 1, 95)
    return [(int(source), int(target)) for source, target in lengths]


@given(
    calls=st.lists(st.lists(st.integers(1, 200), min_size=1, max_size=150), min_size=1, max_size=3),
    mini_batch=st.integers(1, 100),
    words=st.sampled_from([0, 1, 100, 1000]),
)
def test_every_sentence_is_in_one_batch_that_is_large_enough(
    model: Model, calls: list[list[int]], mini_batch: int, words: int
) -> None:
    plan = Scoring(model, mini_batch=mini_batch, mini_batch_words=words)
    for lengths in calls:
        batches = list(plan.batches(lengths))
        assert sorted(number for numbers, _ in batches for number in numbers) == [*range(len(lengths))]
        assert len({length for _, (_, length) in batches}) <= MOST_LENGTHS
        for numbers, (rows, length) in batches:
            assert len(numbers) <= rows <= mini_batch and max(lengths[number] for number in numbers) <= length
            assert rows == 1 or rows * length <= min(words or POSITIONS["cpu"], POSITIONS["cpu"])


def test_few_programs_serve_lines_of_all_lengths(model: Model) -> None:
    plan, samples = Scoring(model), pairs(mixed(500))
    before = mgraph.compile_stats()
    found = dict(plan.scores(samples))
    assert (mgraph.compile_stats() - before).misses <= MOST_LENGTHS + 1
    before = mgraph.compile_stats()
    again = dict(plan.scores(samples[:450]))
    assert (mgraph.compile_stats() - before).misses == 0
    for number, scored in again.items():
        np.testing.assert_allclose(scored.word_scores, found[number].word_scores, atol=1e-5)
    for number in (0, 17, 499):
        (alone,) = score(model, [samples[number]])
        np.testing.assert_allclose(alone.word_scores, found[number].word_scores, atol=1e-5)


def test_a_smaller_program_is_made_when_padding_has_cost_as_much(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Scoring(model)
    ((_, (many, length)),) = plan.batches([20] * 60)
    monkeypatch.setattr(few_batches, "PROGRAM", 3 * (many - 1) * length)
    assert [next(plan.batches([20]))[1] for _ in range(5)] == [(many, length)] * 3 + [(1, length)] * 2
    assert next(plan.batches([20] * FEW_ROWS))[1] == (many, length), "what another size wasted is not counted"


def test_the_smallest_program_that_is_large_enough_serves() -> None:
    batches = FewBatches(64, 0, WORDS)
    rows = [next(batches([20] * count))[1][0] for count in (FEW_ROWS, 64, 1, FEW_ROWS)]
    assert rows == [FEW_ROWS, 64, FEW_ROWS, FEW_ROWS]


def test_known_lengths_serve_until_a_new_one_saves_much() -> None:
    at_once, later = FewBatches(64, 0, WORDS), FewBatches(64, 0, WORDS)
    assert {length for _, (_, length) in at_once([20] + [9] * 4000)} == {16, 24}
    assert {length for _, (_, length) in later([20])} == {24}
    assert {length for _, (_, length) in later([9] * 4000)} == {24}


def test_other_devices_have_no_limit_of_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    def shape() -> tuple[int, int]:
        return next(FewBatches(64, 0, WORDS)([200] * 64))[1]

    assert shape() == (8, 256)
    monkeypatch.setattr(few_batches, "POSITIONS", {})
    assert shape() == (64, 256)


def test_the_longest_are_first_and_none_is_padded_more_than_needed() -> None:
    batches, lengths = FewBatches(64, 0, WORDS), [16, 90, 9, 128] * 500
    found = [(lengths[number], length) for numbers, (_, length) in batches(lengths) for number in numbers]
    assert found == sorted(found, reverse=True)
    assert {*found} == {(9, 16), (16, 16), (90, 128), (128, 128)}
    assert list(FewBatches(64, 0, WORDS)([])) == []


def test_few_sentences_have_few_rows(model: Model) -> None:
    plan = Scoring(model)
    assert [next(plan.batches([9] * count))[1][0] for count in (1, 2, FEW_ROWS, FEW_ROWS + 1)] == [
        1,
        8,
        8,
        64,
    ]
