"""Few shapes for many batches: a program is compiled for each shape, so batches are padded to few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from nmt.data.batches import batch_bucket, length_bucket

MOST_SHAPES = 12
MORE_SHAPES = 16
"""Allowed where `MOST_SHAPES` waste more than `WASTE`."""
WASTE = 0.15
"""A share of all positions."""
MOST_CANDIDATES = 600
"""Shapes to begin merging with; merging takes time quadratic in their number."""

Shape = tuple[int, ...]
"""Rows, then the length of each stream."""


Sizes = Callable[[tuple[int, ...]], int]
"""How many sentences fit into memory, given the longest of each stream (``--mini-batch-fit``)."""


def area(shape: Shape) -> int:
    """Positions of all streams together."""
    return shape[0] * sum(shape[1:])


class Shapes:
    """Shapes that batches are padded to, each to the smallest that it fits into.

    What a batch is padded to depends on nothing but the batch and the shapes that were chosen, so that a run
    that is taken up again pads as one that was never interrupted.

    chosen: the shapes. sizes: with ``--mini-batch-fit``, how many rows fit into memory; then the rows of the
        shapes that were chosen do not matter, and a batch is padded to as many as fit.
    """

    def __init__(self, chosen: Iterable[Shape], sizes: Sizes | None = None) -> None:
        ones = {(1, *shape[1:]) for shape in chosen} if sizes else set(chosen)
        self.chosen = tuple(sorted(ones, key=lambda shape: (area(shape), shape)))
        self._sizes = sizes

    def of(self, batch: Shape) -> tuple[Shape, bool]:
        """The shape for a batch, and whether it was chosen before.

        One that fits into none gets its own, with its lengths rounded up to `length_bucket` and its rows to
        `batch_bucket`, so that such batches too have few.
        """
        if self._sizes:
            batch = (1, *batch[1:])
        fitting = (shape for shape in self.chosen if all(map(int.__le__, batch, shape)))
        shape = next(fitting, None)
        known = shape is not None
        if shape is None:
            shape = (batch_bucket(batch[0]), *map(length_bucket, batch[1:]))
        return ((max(1, self._sizes(shape[1:])), *shape[1:]) if self._sizes else shape), known

    def rows(self, lengths: tuple[int, ...]) -> int:
        """How many rows a batch of such lengths has when it is full (``--mini-batch-fit``)."""
        return self.of((1, *lengths))[0][0]


def choose(batches: Mapping[Shape, int]) -> list[Shape]:
    """At most 12 shapes that all of `batches` fit into, with little padding.

    Up to 16 where 12 waste more than 15 % of the positions, as they do if the rows of a batch depend on its
    words.

    batches: how many there are of each shape. Each begins with a shape of its own; the two shapes whose
    merging adds the fewest positions are merged, until few are left. Then each batch goes to the smallest
    shape that it fits into, and shapes shrink to the batches that they are left with.
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


def _candidates(batches: Mapping[Shape, int]) -> tuple[np.ndarray, np.ndarray]:
    """The shapes and their numbers, as arrays; rounded up if they would be too many."""
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
    """Shapes merged greedily until 12 are left, or 16 if fewer had more than `enough` positions."""

    def areas(table: np.ndarray) -> np.ndarray:
        return np.asarray(table[..., 0] * table[..., 1:].sum(-1))

    def added(one: int) -> np.ndarray:
        """Positions that merging `one` with each of the others would add."""
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
