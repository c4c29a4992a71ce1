"""Shapes of batches, padded and packed, and what they cost."""

from __future__ import annotations

import numpy as np

from nmt.text.few_shapes import FittingShapes, Shapes, choose, worth_compiling
from nmt.text.layouts import ATTENTION, PADDED, PackedLayout, RecurrentLayout
from nmt.text.packing import WIDTH
from nmt.text.sentences import Sentence
from nmt.text.shapes import Shape

SENTENCES = [Sentence(i, ([2] * source, [3] * target)) for i, (source, target) in
             enumerate([(40, 30), (30, 30), (20, 5), (2, 40)])]  # fmt: skip


def test_padded_sentences() -> None:
    assert PADDED.size(SENTENCES) == (4, 40, 40)
    assert PADDED.positions((4, 40, 40)) == 320
    assert PADDED.costs([(4, 40, 40), (2, 3, 4)]).tolist() == [320, 14]
    assert PADDED.batch(SENTENCES, (5, 48, 40)).shape == (5, 48, 40)
    assert PADDED.batch(SENTENCES, (5, 48, 40)).packed is None


def test_packed_sentences_take_rows_of_words() -> None:
    assert PackedLayout().size(SENTENCES) == (4, 40, 40, 3, 4)  # 92 and 105 words
    layout = PackedLayout(parts=2)
    size = layout.size(SENTENCES)
    assert size == (4, 40, 40, 2, 3), "60 and 32 words; 35 and 70"
    assert (layout.lengths(size), layout.words(size)) == ((40, 40), (2, 3))
    assert layout.positions(size) == 2 * 5 * WIDTH
    assert layout.costs(np.array([size])).tolist() == [320 + 320 // ATTENTION]
    assert layout.full((3, 40, 50)) == (3, 40, 50, 3, 4), "two sentences in a part"
    batch = layout.batch(SENTENCES, (5, 48, 40, 3, 4))
    assert (batch.shape, batch.packed) == ((5, 48, 40), (3, 4))


def test_sources_of_recurrent_models_take_rows_for_whole_sentences() -> None:
    layout = RecurrentLayout()
    size = layout.size(SENTENCES)
    assert size == (4, 40, 40, 2, 4), "rows of 56 words: 40 and 2; 30 and 20. 105 words"
    assert (layout.lengths(size), layout.words(size)) == ((40, 40), (2, 4))
    assert layout.positions(size) == 2 * 56 + 4 * 40
    cost = 112 + (160 + 4 * WIDTH) // 2 + 160 // ATTENTION
    assert layout.costs([size, size]).tolist() == [cost] * 2
    assert layout.full((3, 41, 50)) == (3, 41, 50, 3, 5)
    batch = layout.batch(SENTENCES, (5, 48, 40, 3, 4))
    assert (batch.shape, batch.packed) == ((5, 48, 40), (3, 4))
    halves = RecurrentLayout(parts=2)
    assert halves.size(SENTENCES) == (4, 40, 40, 2, 3), "40; 20. 30 and 2. 35 and 70"
    assert halves.positions((4, 40, 40, 1, 3)) == 2 * 56 + 160
    assert halves.full((3, 40, 50)) == (3, 40, 50, 2, 4)
    several = [Sentence(0, ([2] * 4, [2] * 6, [3] * 5)), Sentence(1, ([2] * 2, [2] * 11, [3] * 7))]
    assert layout.size(several) == (2, 4, 11, 7, 1, 2, 1), "11 and 6 are more than 16"
    assert layout.positions((2, 4, 11, 7, 1, 2, 1)) == 8 + 2 * 16 + 2 * 7
    equal = [Sentence(i, ([2] * 30, [3] * 8)) for i in range(8)]
    assert layout.size(equal) == (8, 49, 8, 4, 2), "three fifths of 49 are 30; rows of 64"
    only_target = [Sentence(0, ([3] * 5,)), Sentence(1, ([3] * 7,))]
    assert RecurrentLayout(3).size(only_target) == (2, 7, 1)
    assert layout.positions((2, 7, 1)) == 14
    only_target = [Sentence(i, ([3] * 30,)) for i in range(8)]
    assert layout.size(only_target) == (8, 30, 8), "tiers are for sources"


def test_a_batch_has_room_in_its_shape() -> None:
    layout, dice = PackedLayout(), np.random.default_rng(0)
    sizes: dict[Shape, int] = {}
    for _ in range(300):
        longest = int(dice.integers(5, 60))
        lengths = dice.integers(max(1, longest - 10), longest + 1, (64, 2)).tolist()
        size = layout.size([Sentence(i, ([2] * a, [3] * b)) for i, (a, b) in enumerate(lengths)])
        sizes[size] = sizes.get(size, 0) + 1
    chosen = choose(sizes, layout)
    shapes = Shapes(chosen, layout)
    assert len(chosen) <= 12
    padded = 0
    for size, count in sizes.items():
        shape, known = shapes.of(size)
        assert known and all(map(int.__le__, size, shape))
        padded += count * layout.positions(shape)
    assert 1 - sum(layout.positions(s) * n for s, n in sizes.items()) / padded < 0.1
    few = worth_compiling(chosen, {size: float(n) for size, n in sizes.items()}, 1, layout)
    assert set(few) <= set(chosen)


def test_batches_that_fit_into_memory_have_room_for_typical_words() -> None:
    layout = PackedLayout()
    shapes = FittingShapes(
        [(1, 20, 20)], lambda lengths: 40, layout, [(40, 18, 20, 15, 17), (39, 20, 9, 16, 4)]
    )
    assert shapes.of((40, 19, 19, 16, 17)) == ((40, 20, 20, 16, 17), True)
    assert shapes.of((40, 20, 20, 17, 17)) == ((40, 20, 20, 25, 25), False), "more words than usual"
    assert shapes.of((2, 30, 8, 2, 1))[0] == (40, 32, 8, 40, 10), "longer sentences than usual"
    assert shapes.rows((12, 15)) == 40
