"""The places where hypotheses' words are kept, compared with lists of words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.transformer import Now, no_ancestors, self_attention, with_ancestors
from mgraph import ExpressionGraph, Type

BATCH, BEAM, STEPS = 2, 3, 7
PARTS = 4, 5, 3


def recorded() -> tuple[Now, object]:
    """A step as a function of the record and of positions."""
    graph = ExpressionGraph(inference=True)
    before = no_ancestors(graph, BATCH, BEAM, PARTS)
    record = graph.input("record", before.shape, Type.float32)
    position = graph.input("position", (BATCH,), Type.int32)
    after, now, full = with_ancestors(record, position, BEAM, PARTS, Type.float32)
    nodes = [after, now.used, full, *(node for part in now.parts for node in part)]
    return before, graph.function(nodes, [record, position])


BEFORE, STEP = recorded()


@given(seed=st.integers(0, 10_000), ended=st.integers(0, STEPS - 1))
@settings(max_examples=40)
def test_each_hypothesis_sees_its_own_words_and_no_others(seed: int, ended: int) -> None:
    random, places = np.random.default_rng(seed), sum(PARTS)
    record = np.zeros(BEFORE.shape, np.float32)
    pasts: list[list[list[int]]] = [[[] for _ in range(BEAM)] for _ in range(BATCH)]
    kept = np.full((BATCH, places), -1)  # the word at each place
    overflowed = np.zeros(BATCH, bool)
    for step in range(STEPS):
        positions = np.full(BATCH, step, np.int32)
        if step >= ended:  # the first row has a new sentence, which sees nothing of the old one
            positions[0] = step - ended
            if step == ended:
                pasts[0], overflowed[0] = [[] for _ in range(BEAM)], False
        record, used, full, *parts = (np.asarray(value) for value in STEP(record, positions))
        overflowed |= full > 0
        starts = np.cumsum([0, *PARTS[:-1]])
        for row in range(BATCH):
            for hypothesis in range(BEAM):
                word = step * BEAM + hypothesis
                at = [p[row, 0, hypothesis, 0] for p in parts[::2]]
                found = [start + i for start, i, n in zip(starts, at, PARTS, strict=True) if i < n]
                if found:
                    (place,) = found
                    kept[row, place] = word
                else:
                    assert full[row], "a word without a place"
                pasts[row][hypothesis].append(word)
            if overflowed[row]:
                continue
            for hypothesis, past in enumerate(pasts[row]):
                masks = np.concatenate([mask[row, 0, hypothesis] for mask in parts[1::2]])
                assert sorted(kept[row][masks == 0]) == past
                assert np.max(np.flatnonzero(masks == 0)) <= used.max()
        origins = random.integers(0, BEAM, (BATCH, BEAM)) // random.integers(1, BEAM + 1)
        record = record.reshape(BATCH, BEAM, -1)[np.arange(BATCH)[:, None], origins].reshape(record.shape)
        pasts = [[list(past[o]) for o in row] for past, row in zip(pasts, origins, strict=True)]


def test_many_places_are_counted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running sums count them where a product would have too many terms."""
    monkeypatch.setattr(self_attention, "MOST_BY_PRODUCT", 0)
    before, step = recorded()
    for seed in range(5):
        record = np.random.default_rng(seed).integers(0, 2, before.shape).astype(np.float32)
        both = [np.asarray(v) for take in (step, STEP) for v in take(record, np.ones(BATCH, np.int32))]
        for found, expected in zip(both[: len(both) // 2], both[len(both) // 2 :], strict=True):
            np.testing.assert_array_equal(found, expected)


def test_beam_times_the_steps_always_suffice() -> None:
    record = np.zeros(BEFORE.shape, np.float32)
    for step in range(sum(PARTS) // BEAM):
        record, _, full, *_ = (np.asarray(v) for v in STEP(record, np.full(BATCH, step, np.int32)))
        assert not full.any()
    assert all(np.asarray(STEP(record, np.full(BATCH, step + 1, np.int32))[2])), "no place is left"
