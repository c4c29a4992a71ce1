"""Few shapes for many batches."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.text.few_shapes import (
    MORE_SHAPES,
    MOST_SHAPES,
    WASTE_AT_FIRST,
    FittingShapes,
    Shapes,
    choose,
    worth_compiling,
)
from nmt.text.layouts import PADDED
from nmt.text.shapes import Shape

SIZES = st.integers(1, 60)
BATCHES = st.dictionaries(st.tuples(SIZES, SIZES, SIZES), st.integers(1, 9), max_size=60)


def positions(shapes: Shapes, batches: dict[Shape, int]) -> int:
    return sum(PADDED.positions(shapes.of(batch)[0]) * count for batch, count in batches.items())


@settings(max_examples=40, deadline=None)
@given(BATCHES)
def test_every_batch_fits_into_one_of_few(batches: dict[Shape, int]) -> None:
    chosen = choose(batches)
    shapes = Shapes(chosen)
    assert len(chosen) <= MORE_SHAPES and (len(batches) > MOST_SHAPES or set(chosen) == set(batches))
    for batch in batches:
        shape, known = shapes.of(batch)
        assert known and all(need <= size for need, size in zip(batch, shape, strict=True))
        fitting = [other for other in chosen if all(map(int.__le__, batch, other))]
        assert PADDED.positions(shape) == min(map(PADDED.positions, fitting))
    assert choose(dict(reversed(batches.items()))) == chosen


def test_little_is_wasted() -> None:
    """The best 12 shapes for 60 lengths have equal steps, and waste 6.2 % of the positions."""
    batches = {(8, length, length): 1 for length in range(1, 61)}
    real = sum(map(PADDED.positions, batches))
    shapes = Shapes(choose(batches))
    assert len(shapes.chosen) == MOST_SHAPES
    assert 1 - real / positions(shapes, batches) < 0.075
    assert choose(dict.fromkeys(batches, 7)) == choose(batches), "only shares count"
    # If all sizes differ, 12 shapes waste more than 15 %.
    batches = {(1 + 7 * i % 59, 1 + 13 * i % 59, 1 + 29 * i % 59): 1 for i in range(59)}
    shapes = Shapes(choose(batches))
    assert len(shapes.chosen) == MORE_SHAPES


def test_very_many_shapes_are_rounded_first() -> None:
    batches = Counter({(rows, source, 7): 1 for rows in range(1, 40) for source in range(1, 40)})
    shapes = Shapes(choose(batches))
    assert len(shapes.chosen) <= MORE_SHAPES
    assert all(shapes.of(batch)[1] for batch in batches)
    assert max(shape[0] for shape in shapes.chosen) == 39


def test_a_batch_that_fits_into_none_has_a_shape_of_its_own() -> None:
    shapes = Shapes([(8, 10, 10)])
    assert shapes.of((3, 5, 5)) == ((8, 10, 10), True)
    assert shapes.of((9, 5, 11)) == ((16, 8, 16), False)
    assert shapes.chosen == ((8, 10, 10),)


def test_the_cheapest_shape_is_taken_first() -> None:
    shapes = Shapes([(2, 60, 60), (8, 10, 10), (4, 10, 40)])
    assert shapes.chosen == ((8, 10, 10), (4, 10, 40), (2, 60, 60))
    assert [shapes.of((rows, 5, 5))[0][0] for rows in (1, 2, 4, 8)] == [8] * 4


def test_rows_that_fit_into_memory() -> None:
    shapes = FittingShapes([(5, 10, 10), (7, 10, 10), (2, 20, 20)], lambda lengths: 100 // sum(lengths))
    assert len(shapes.chosen) == 2
    assert shapes.of((1, 9, 4)) == ((5, 10, 10), True)
    assert shapes.rows((11, 4)) == 2
    assert shapes.of((1, 90, 90)) == ((1, 96, 96), False)


def test_a_short_training_compiles_few_programs() -> None:
    batches = {(8, length, length): 1.0 for length in range(1, 61)}
    chosen, real = choose(dict.fromkeys(batches, 1)), sum(map(PADDED.positions, batches))
    before: set[Shape] = set()
    for number in (1, 4, 16, 64):
        left = worth_compiling(chosen, batches, number, program=10_000)
        wasted = 1 - real / sum(PADDED.positions(Shapes(left).of(batch)[0]) for batch in batches)
        assert before <= set(left) <= set(chosen) and wasted <= WASTE_AT_FIRST
        before = set(left)
    assert len(worth_compiling(chosen, batches, 1, program=10_000)) == 2 and len(before) == len(chosen)
    many = dict.fromkeys(batches, 1000.0)
    assert worth_compiling(chosen, many, 1) == sorted(chosen, key=PADDED.positions)
    assert worth_compiling([(8, 9, 9)], {(8, 9, 9): 1.0}, 1) == [(8, 9, 9)]
