"""Few shapes for many batches, because one program is compiled per shape.

Translation and scoring pad to fixed buckets (``bucketed``), training to shapes chosen for the text
(``choose``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

SHORTEST_BUCKET = 8
MOST_SHAPES = 12
MORE_SHAPES = 16
"""Allowed where ``MOST_SHAPES`` waste more than ``WASTE``."""
WASTE = 0.15
"""The share of all positions that may be padding."""
PROGRAM = 10_000
"""About how many positions are trained on while one program compiles: 20,000 for a transformer of 256 on two
cores, 5,000 for one of 512."""
PATIENCE = 10
"""How many times its price a program must save that only saves padding."""
MOST_CANDIDATES = 600
"""How many shapes merging starts with; its time is quadratic in them."""

Shape = tuple[int, ...]
"""Rows, then the length of each stream."""

Sizes = Callable[[tuple[int, ...]], int]
"""How many sentences fit into memory, given the longest length of each stream (``--mini-batch-fit``)."""


def area(shape: Shape) -> int:
    """The number of positions in all streams."""
    return shape[0] * sum(shape[1:])


def length_bucket(length: int) -> int:
    """The padded length for a sequence of ``length`` words: 8, 16, 24, 32, 48, 64, 96, 128, 192, ...

    From 16 on these are the powers of two and the numbers halfway between them: each bucket is at most 1.5
    times the one below, so a batch wastes less than a third of its positions, and 13 buckets reach a
    thousand words.
    """
    if length <= SHORTEST_BUCKET:
        return SHORTEST_BUCKET
    power = 1 << (length - 1).bit_length()  # the power of two at or above `length`
    halfway = power * 3 // 4
    return halfway if length <= halfway and power > 2 * SHORTEST_BUCKET else power


def batch_bucket(sentences: int) -> int:
    """The padded number of sentences: the next power of two."""
    return 1 << max(sentences - 1, 0).bit_length()


def bucketed(batch: Shape) -> Shape:
    """A shape rounded up: rows to ``batch_bucket``, lengths to ``length_bucket``."""
    return (batch_bucket(batch[0]), *map(length_bucket, batch[1:]))


def few_lengths(
    lengths: Mapping[int, int],
    ladder: Iterable[int],
    cost: Callable[[int, int], float],
    *,
    price: float,
    most: int,
    known: Collection[int] = (),
    top: int = 0,
) -> list[int]:
    """The few of the lengths in ``ladder`` and ``known`` to which padding costs least, ascending.

    lengths: how many sentences there are of each length. cost: of a sentence of some length, padded to
    another. price: what programs for a new length cost, in the same unit. most: how many may be chosen.
    known: lengths that have programs. top: the last one is at least this.

    Few lengths waste positions on padding, each new one takes time to compile: the least sum of both wins.
    One that only saves padding must save more, so that calls like those before compile nothing.
    """
    longest, rungs = max(max(lengths), top), sorted({*ladder, *known})
    if known and max(known) >= longest:
        price *= PATIENCE

    def total(chosen: Sequence[int]) -> float:
        padded = {length: next(each for each in chosen if each >= length) for length in lengths}
        spent = sum(count * cost(length, padded[length]) for length, count in lengths.items())
        return spent + price * len({*chosen} - {*known})

    options = [
        list(chosen)
        for number in range(1, most + 1)
        for chosen in combinations(rungs, number)
        if chosen[-1] >= longest
    ]
    return min(options, key=total)


class Shapes:
    """Pads each batch to the smallest of the chosen shapes that it fits into.

    The result depends only on the batch and the chosen shapes, so an interrupted run pads like an
    uninterrupted one.

    chosen: the shapes. sizes: with ``--mini-batch-fit``, how many rows fit into memory; batches are then
        padded to that number, whatever the rows of the chosen shapes.
    """

    def __init__(self, chosen: Iterable[Shape], sizes: Sizes | None = None) -> None:
        ones = {(1, *shape[1:]) for shape in chosen} if sizes else set(chosen)
        self.chosen = tuple(sorted(ones, key=lambda shape: (area(shape), shape)))
        self._sizes = sizes

    def of(self, batch: Shape) -> tuple[Shape, bool]:
        """The shape for a batch, and whether it is a chosen one; otherwise it is ``bucketed``."""
        if self._sizes:
            batch = (1, *batch[1:])
        fitting = (shape for shape in self.chosen if all(map(int.__le__, batch, shape)))
        shape = next(fitting, None)
        known = shape is not None
        shape = shape or bucketed(batch)
        return ((max(1, self._sizes(shape[1:])), *shape[1:]) if self._sizes else shape), known

    def rows(self, lengths: tuple[int, ...]) -> int:
        """How many rows a full batch of these lengths has (``--mini-batch-fit``)."""
        return self.of((1, *lengths))[0][0]


def choose(batches: Mapping[Shape, int]) -> list[Shape]:
    """At most 12 shapes that all of ``batches`` fit into, with little padding.

    Up to 16 if 12 waste more than 15 % of the positions, as when the rows of a batch depend on its words.

    batches: the number of batches of each shape. Starting from these shapes, merge the pair that adds the
    fewest positions until few are left. Then assign each batch to the smallest shape that it fits into, and
    shrink the shapes to their batches.
    """
    if not batches:
        return []
    real = sum(area(batch) * count for batch, count in batches.items())
    chosen = _merged(*_candidates(batches), real / (1 - WASTE))
    while True:
        needs: dict[Shape, Shape] = {}
        shapes = Shapes(chosen)
        for batch in batches:
            shape, _ = shapes.of(batch)
            needs[shape] = tuple(map(max, needs.get(shape, batch), batch))
        if sorted(needs.values()) == sorted(chosen):
            return chosen
        chosen = sorted(needs.values())


def worth_compiling(chosen: Iterable[Shape], epoch: Mapping[Shape, float], number: int) -> list[Shape]:
    """The chosen shapes that are worth compiling a program for in epoch ``number``, from 1.

    A shape is left out, and its batches are padded to others, until the positions this adds in the epochs so
    far cost as much as its program (``PROGRAM``), or would exceed 15 % waste. So a short training compiles
    few programs, and a long one all.

    epoch: how many batches of each shape an epoch has.
    """
    shapes = sorted(chosen, key=lambda shape: (area(shape), shape))
    counts, areas = np.array([*epoch.values()]), np.array([*map(area, shapes)])
    needs = np.array([*epoch])[:, None, :]
    fits = np.all(needs <= np.array(shapes), axis=-1)
    enough = sum(area(batch) * count for batch, count in epoch.items()) / (1 - WASTE)

    def positions(left: list[int]) -> float:
        own = fits[:, left]
        return float((areas[left][own.argmax(1)] * counts).sum()) if own.any(1).all() else np.inf

    left = [*range(len(shapes))]
    now = positions(left)
    while len(left) > 1:
        fewer = [[other for other in left if other != one] for one in left]
        least = min(fewer, key=positions)
        after = positions(least)
        if after > enough or (after - now) * number >= PROGRAM:
            break
        left, now = least, after
    return [shapes[i] for i in left]


def _candidates(batches: Mapping[Shape, int]) -> tuple[np.ndarray, np.ndarray]:
    """The shapes and their counts, as arrays; rounded up if they are too many."""
    step = 1
    while True:
        rounded: Counter[Shape] = Counter()
        for batch, count in batches.items():
            rounded[tuple(-(-size // step) * step for size in batch)] += count
        if len(rounded) <= MOST_CANDIDATES:
            table = sorted(rounded.items())
            shapes = np.array([shape for shape, _ in table], np.int64)
            return shapes, np.array([count for _, count in table], np.int64)
        step += 1


def _merged(shapes: np.ndarray, counts: np.ndarray, enough: float) -> list[Shape]:
    """Merge shapes greedily until 12 are left, or up to 16 if fewer exceed ``enough`` positions."""

    def areas(table: np.ndarray) -> np.ndarray:
        return np.asarray(table[..., 0] * table[..., 1:].sum(-1))

    def added(one: int) -> np.ndarray:
        """The positions added by merging ``one`` with each other shape."""
        merged = areas(np.maximum(shapes[one], shapes)) * (counts[one] + counts)
        return np.asarray(merged - areas(shapes) * counts - areas(shapes[one]) * counts[one])

    never = np.iinfo(np.int64).max
    costs = np.stack([added(one) for one in range(len(shapes))])
    np.fill_diagonal(costs, never)
    left, positions = len(shapes), int((areas(shapes) * counts).sum())
    while left > MOST_SHAPES:
        one, other = np.unravel_index(int(costs.argmin()), costs.shape)
        positions += int(costs[one, other])
        if left <= MORE_SHAPES and positions > enough:
            break
        shapes[one] = np.maximum(shapes[one], shapes[other])
        counts[one] += counts[other]
        alive = costs[one] < never
        alive[other] = False
        costs[other] = costs[:, other] = never
        costs[one, alive] = costs[alive, one] = added(int(one))[alive]
        left -= 1
    alive = (costs < never).any(axis=1) if len(shapes) > 1 else [True]
    return sorted(tuple(shape) for shape in shapes[alive].tolist())
