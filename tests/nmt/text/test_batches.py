"""Batches: every sample once, few shapes, no reading ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.settings.sections import BatchOptions
from nmt.text.batches import Batching, pad, pad_for_training, windows
from nmt.text.sentences import Sentence
from nmt.text.shapes import batch_bucket, bucketed, length_bucket


def samples(*lengths: int) -> list[Sentence]:
    return [Sentence(line, ([1] * length,)) for line, length in enumerate(lengths)]


def batching(**options: Any) -> Batching:
    return Batching(BatchOptions(**{"maxi_batch": 1, "maxi_batch_sort": "none", **options}))


def batches(sentences: list[Sentence], **options: Any) -> list[list[Sentence]]:
    return batching(**options).marian_batches(sentences)


def lines(found: list[list[Sentence]]) -> list[list[int]]:
    return [[sample.line for sample in batch] for batch in found]


def test_length_buckets() -> None:
    found = sorted({length_bucket(n) for n in range(1, 1001)})
    assert found == [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]


@given(st.integers(1, 100_000))
def test_a_length_bucket_is_tight_and_its_own_bucket(length: int) -> None:
    bucket = length_bucket(length)
    assert bucket >= length
    assert length_bucket(bucket) == bucket
    assert bucket <= max(16, 1.5 * length)


def test_batch_buckets() -> None:
    assert [batch_bucket(n) for n in (1, 2, 3, 4, 5, 9, 60)] == [1, 2, 4, 4, 8, 16, 64]
    assert bucketed((5, 9, 30)) == (8, 16, 32)


def test_padding_repeats_the_first_row() -> None:
    batch = pad([[[5, 6, 0], [7, 0], [8, 9, 4, 0]]])
    (ids,), (mask,) = batch.ids, batch.masks
    assert (batch.sentences, batch.shape) == (3, (4, 8))
    assert ids.shape == mask.shape == (4, 8)
    assert ids.dtype == np.int32 and mask.dtype == np.float32
    assert mask.sum(axis=1).tolist() == [3, 2, 4, 3]
    assert ids[1].tolist() == [7, 0, 0, 0, 0, 0, 0, 0]
    assert mask[1].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert (ids[3] == ids[0]).all() and (mask[3] == mask[0]).all()


def test_padding_to_a_shape() -> None:
    streams = [[[5, 6, 0], [7, 0]], [[1, 0], [2, 3, 0]]]
    batch = pad(streams, (3, 4, 3), target=True)
    assert batch.shape == (3, 4, 3) and batch.words == 5
    assert [mask.sum(axis=1).tolist() for mask in batch.masks] == [[3, 2, 3], [2, 3, 0]]
    assert pad(streams, (3, 4, 3)).masks[1].sum(axis=1).tolist() == [2, 3, 2]
    with pytest.raises(ValueError):
        pad(streams, (3, 4))


def test_unsorted_batches_come_from_the_last_line_to_the_first() -> None:
    assert lines(batches(samples(3, 1, 2, 5, 4), mini_batch=2)) == [[4, 3], [2, 1], [0]]


@pytest.mark.parametrize(("order", "first"), [("src", 1), ("trg", 0)])
def test_the_stream_that_is_sorted_by(order: str, first: int) -> None:
    pairs = [Sentence(0, ([1], [1] * 5)), Sentence(1, ([1] * 3, [1]))]
    found = batches(pairs, mini_batch=1, maxi_batch_sort=order)
    assert found[0][0].line == first


def test_mini_batch_words_closes_a_batch_above_the_limit() -> None:
    found = batches(samples(3, 3, 4, 2, 9, 1)[::-1], mini_batch=6, mini_batch_words=6)
    assert lines(found) == [[5, 4], [3, 2, 1], [0]]


def test_batches_as_large_as_memory_allows() -> None:
    lengths = [(9, 1), (5, 8), (5, 2), (4, 4)]
    sentences = [Sentence(line, ([1] * a, [1] * b)) for line, (a, b) in enumerate(lengths)]
    asked = []

    def sizes(lengths: tuple[int, ...]) -> int:
        asked.append(lengths)
        return 20 // sum(lengths)

    options = BatchOptions(maxi_batch=1, maxi_batch_sort="src")
    assert lines(Batching(options, sizes).marian_batches(sentences)) == [[0], [1], [2, 3]]
    assert asked == [(9, 1), (9, 8), (5, 8), (5, 2), (5, 4)], "the longest of a batch"
    one_by_one = Batching(options, lambda lengths: 0).marian_batches(sentences)
    assert lines(one_by_one) == [[0], [1], [2], [3]], "a sentence beyond the memory is a batch"


def test_weights_and_links_only_if_there_are_any() -> None:
    sentences = [Sentence(0, ([5, 0], [6, 7, 0])), Sentence(1, ([5, 8, 0], [6, 0]))]
    batch = pad_for_training(sentences, (2, 3, 4))
    assert batch.weights is None and batch.alignment is None and batch.packed is None
    weighted = [one._replace(weights=[0.5], alignment=[(0, 1)]) for one in sentences]
    batch = pad_for_training(weighted, (2, 3, 4), (1, 2))
    assert batch.weights is not None and batch.alignment is not None and batch.packed == (1, 2)
    assert batch.weights.dtype == batch.alignment.dtype == np.float32
    assert batch.weights.tolist() == [[0.5, 1, 1, 1]] * 2
    assert batch.alignment.shape == (2, 4, 3)
    assert np.argwhere(batch.alignment).tolist() == [[0, 1, 0], [1, 1, 0]]


def test_parts_of_a_batch() -> None:
    sentences = [
        Sentence(i, ([i + 1, 0], [5, 0], [i + 11, 0]), weights=[i / 4], alignment=[(0, i % 2)])
        for i in range(5)
    ]
    batch = pad_for_training(sentences, (6, 2, 2, 3), (4, 5, 6))
    one, other = batch.split(2)
    assert [(part.sentences, part.shape, part.packed) for part in (one, other)] == [
        (3, (3, 2, 2, 3), (4, 5, 6)),
        (2, (3, 2, 2, 3), (4, 5, 6)),
    ]
    for part, rows in (one, [0, 2, 4]), (other, [1, 3, 1]):
        assert part.weights is not None and part.alignment is not None
        assert part.ids[0][:, 0].tolist() == [row + 1 for row in rows]
        assert part.ids[2][:, 0].tolist() == [row + 11 for row in rows]
        assert part.weights[:, 0].tolist() == [row / 4 for row in rows]
        assert part.alignment[:, :2, 0].tolist() == [[1 - row % 2, row % 2] for row in rows]
        assert [mask[:, 0].tolist() for mask in part.masks[:2]] == [[1, 1, 1]] * 2
    assert [mask[:, 0].tolist() for mask in (one.masks[2], other.masks[2])] == [[1, 1, 1], [1, 1, 0]]
    assert [part.sentences for part in batch.split(9)] == [1] * 5
    assert batch.shortened(5) is batch and batch.with_rows(6) is batch
    assert batch.shortened(2).shape == (2, 2, 2, 3) and batch.shortened(2).words == 4
    assert batch.with_rows(8).shape == (8, 2, 2, 3) and batch.with_rows(8).words == 10
    plain = pad_for_training([one._replace(weights=None, alignment=None) for one in sentences], (6, 2, 2, 3))
    assert all(part.weights is part.alignment is None for part in plain.split(2))


def test_nothing_is_read_beyond_a_window() -> None:
    read = []

    def source() -> Iterator[int]:
        for number in range(6):
            read.append(number)
            yield number

    found = windows(source(), 4)
    assert (next(found), read) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert list(found) == [[4, 5]]


def test_windows_without_bound() -> None:
    assert list(windows([3, 4], 2**64 - 1)) == [[3, 4]]
    assert not list(windows([], 1))


@given(
    st.lists(st.integers(1, 30)),
    st.integers(1, 5),
    st.sampled_from(["none", "src", "trg"]),
    st.integers(0, 40),
)
def test_every_sample_comes_once(lengths: list[int], mini: int, order: str, words: int) -> None:
    found = batches(samples(*lengths), mini_batch=mini, maxi_batch_sort=order, mini_batch_words=words)
    assert sorted(line for batch in lines(found) for line in batch) == list(range(len(lengths)))
    assert all(found)
    if not words:
        assert all(len(batch) <= mini for batch in found)
