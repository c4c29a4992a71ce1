"""From batches of the corpus to updates: parts of batches, and batches that grow."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph import ArgumentError
from nmt.settings import TrainOptions
from nmt.text.batches import Batch
from nmt.training.update import Grouping, rounded_up


def batch(sentences: int, length: int = 4, first: int = 1) -> Batch:
    """Sentences of equal length whose source ids are their number, counted from ``first``."""
    numbers = np.arange(first, first + sentences, dtype=np.int32)
    ids = np.repeat(numbers[:, None], length, axis=1)
    mask = np.ones((sentences, length), np.float32)
    return Batch((ids, ids), (mask, mask.copy()), sentences, weights=mask.copy())


def seen(batches: list[Batch]) -> list[int]:
    return [int(n) for part in batches for n in part.ids[0][: part.sentences, 0]]


def test_parts_take_turns_and_have_one_shape():
    parts = batch(7).split(3)
    assert seen(parts) == [1, 4, 7, 2, 5, 3, 6]
    assert [part.sentences for part in parts] == [3, 2, 2]
    assert len({part.shape for part in parts}) == 1
    assert [part.words for part in parts] == [12, 8, 8]
    assert parts[-1].masks[0].all(), "rows that are no sentences repeat the first: no source is empty"
    assert not parts[-1].masks[1][2:].any()
    assert all(len(part.weights) == 3 for part in parts)


def test_parts_of_a_batch_that_is_not_full_have_the_shape_of_others():
    padded = batch(5).with_rows(8)
    parts = padded.split(4)
    assert seen(parts) == [1, 5, 2, 3, 4]
    assert [part.shape for part in parts] == [part.shape for part in batch(8).split(4)]


def test_a_shortened_batch_has_the_first_sentences():
    assert seen([batch(5).shortened(2)]) == [1, 2]
    assert batch(5).shortened(2).shape[0] == 2
    assert seen([batch(5).with_rows(8).shortened(9)]) == [1, 2, 3, 4, 5]


def grouping_of(multiplier=lambda: 1.0, **options):
    return Grouping(TrainOptions(**options), multiplier)


def growing(multiplier, **options):
    return grouping_of(multiplier, mini_batch_warmup="1u", **options)


@pytest.mark.parametrize(("delay", "sentences"), [(2, [3, 2]), (2.5, [2, 2, 1])])
def test_delay_splits_each_batch(delay, sentences):
    grouping = grouping_of(optimizer_delay=delay)
    group = grouping.add(batch(5))
    assert group is not None
    assert [part.sentences for part in group.batches] == sentences and group.taken == 1


def test_a_delay_below_one_takes_the_batch_as_it_is():
    group = grouping_of(optimizer_delay=0.5).add(batch(4))
    assert group is not None and [part.sentences for part in group.batches] == [4]


@pytest.mark.parametrize("delay", [0, -1])
def test_a_delay_is_positive(delay):
    with pytest.raises(ArgumentError, match=f"--optimizer-delay: expected a number above 0, got {delay}"):
        grouping_of(optimizer_delay=delay)


def test_batches_grow_with_the_schedule():
    ratio = 0.5
    grouping = growing(lambda: ratio, mini_batch_round_up=False)
    group = grouping.add(batch(256, first=1))
    assert group is not None and [part.sentences for part in group.batches] == [128]
    ratio = 2.5
    grouping.begin_epoch()
    assert grouping.add(batch(8)) is None
    assert grouping.add(batch(8)) is None
    group = grouping.add(batch(8))
    assert group is not None and group.taken == 3
    assert [part.sentences for part in group.batches] == [7, 7, 7]  # 8 * 2.5 / 3, rounded up
    ratio = 1.0
    assert grouping.add(batch(8)).taken == 1


def test_a_growing_number_of_batches_is_rounded_up_when_asked():
    grouping = growing(lambda: 1.7, mini_batch_round_up=True)
    assert grouping.add(batch(8)) is None
    assert [part.sentences for part in grouping.add(batch(8)).batches] == [8, 8]


def test_a_lone_batch_keeps_enough_words():
    group = growing(lambda: 0.01, mini_batch_round_up=False).add(batch(256, length=4))
    assert group is not None and group.batches[0].sentences == 64  # 256 words


def test_batches_of_the_last_epoch_are_used_but_not_counted():
    grouping = growing(lambda: 2.0)
    grouping.begin_epoch()
    assert grouping.add(batch(4)) is None
    grouping.begin_epoch()
    group = grouping.add(batch(4, first=5))
    assert group is not None and group.taken == 1
    assert seen(group.batches) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_growth_to_a_number_of_words():
    grouping = growing(lambda: 1.0, mini_batch_words=16, mini_batch_round_up=False)
    group = grouping.add(batch(4, length=4))
    assert group is not None and group.batches[0].sentences == 4
    assert grouping.typical_words == 16


@pytest.mark.parametrize(
    ("ratio", "delay", "words", "sentences"),
    [
        (0.25, 2, 0, [4, 4]),  # half a batch, from two
        (1.0, 2, 0, [16, 16]),
        (1.25, 2.5, 0, [13, 13, 13, 13]),  # 3.125 batches, from four: the next multiple of 2
        (4.0, 0.5, 0, [16, 16]),
        (1.0, 3, 32, [11, 11, 11]),  # the words of two batches, from three
    ],
)
def test_a_delay_multiplies_batches_that_grow(ratio, delay, words, sentences):
    options = {"mini_batch_warmup": "1u", "mini_batch_words": words, "optimizer_delay": delay}
    grouping = Grouping(TrainOptions(mini_batch_round_up=False, **options), lambda: ratio, begun=True)
    grouping.typical_words = 16.0
    groups = [grouping.add(batch(16, length=1)) for _ in sentences]
    assert groups[:-1] == [None] * (len(sentences) - 1)
    assert [part.sentences for part in groups[-1].batches] == sentences


def test_the_first_update_of_a_growing_training_has_no_delay():
    grouping = growing(lambda: 1.0, optimizer_delay=2)
    assert grouping.add(batch(4)) is not None
    assert grouping.add(batch(4)) is None and grouping.add(batch(4)) is not None


def test_only_batches_that_were_used_change_the_average():
    """A run that resumes takes pending batches again."""
    ratio = 2.0
    grouping = growing(lambda: ratio, mini_batch_words=16, mini_batch_round_up=False)
    assert grouping.add(batch(8)) is None and grouping.typical_words == 16
    ratio = 1.0
    assert grouping.add(batch(4)) is not None
    assert grouping.typical_words == pytest.approx((16 * 0.99 + 32 * 0.01) * 0.99 + 16 * 0.01)


@pytest.mark.parametrize(("warmup", "parts"), [("0", 2), ("0u", 2), ("1u", 1)])
def test_a_warmup_of_no_length_is_none(warmup, parts):
    grouping = grouping_of(mini_batch_warmup=warmup, optimizer_delay=2)
    assert len(grouping.add(batch(4)).batches) == parts


@pytest.mark.parametrize(
    ("ratio", "rounded"),
    [(0, 0), (0.3, 0.3), (1, 1), (1.7, 2), (2.2, 2.2), (3.3, 4), (9, 10), (21, 24), (33, 40)],
)
def test_numbers_of_batches_are_rounded_up_by_a_quarter_at_most(ratio, rounded):
    assert rounded_up(ratio) == rounded


def test_growing_batches_have_few_numbers_of_rows() -> None:
    share = iter(n / 60 for n in range(1, 61))
    grouping = growing(lambda: next(share), mini_batch_round_up=False)
    batches = [each for _ in range(60) for each in grouping.add(batch(240)).batches]
    assert len({each.sentences for each in batches}) > 40
    assert {each.shape[0] for each in batches} == {64, 128, 240}
    assert all(not each.masks[-1][each.sentences :].any() for each in batches)
