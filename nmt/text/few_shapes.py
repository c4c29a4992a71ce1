"""A few shapes for all batches of a training, because one program is compiled per shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from nmt.text.layouts import PADDED, PaddedLayout
from nmt.text.shapes import Shape, Sizes, bucketed

MOST_SHAPES = 12
MORE_SHAPES = 16
"""Allowed if ``MOST_SHAPES`` waste more than ``WASTE``."""
WASTE = 0.15
"""The share of all positions that padding to the chosen shapes may add in the end."""
WASTE_AT_FIRST = 0.4
"""The same share while not all programs are compiled yet."""
PROGRAM = 20_000
"""About how many positions could be trained on while one program compiles, if the model is unknown."""
MOST_CANDIDATES = 600
"""How many shapes merging starts with, at most; its time grows with their square."""


class Shapes:
    """Pads each batch to the smallest of the chosen shapes that it fits into.

    The result depends only on the batch and the chosen shapes, so an interrupted run pads like an
    uninterrupted one.
    """

    def __init__(self, chosen: Iterable[Shape], layout: PaddedLayout = PADDED) -> None:
        self.chosen = by_cost(chosen, layout)

    def of(self, batch: Shape) -> tuple[Shape, bool]:
        """The shape for a batch of this size, and whether it is a chosen one; if not, it is ``bucketed``."""
        fitting = _fitting(self.chosen, batch)
        return fitting or bucketed(batch), fitting is not None


class FittingShapes(Shapes):
    """Shapes for ``--mini-batch-fit``: batches have as many rows as fit into memory.

    chosen: shapes, of which only the lengths of the streams are used. sizes: how many rows fit. batches: the
    sizes of typical batches; packed batches get room for the words of these.
    """

    def __init__(
        self,
        chosen: Iterable[Shape],
        sizes: Sizes,
        layout: PaddedLayout = PADDED,
        batches: Iterable[Shape] = (),
    ) -> None:
        super().__init__({(1, *shape[1:]) for shape in chosen}, PADDED)
        self.layout, self._sizes = layout, sizes
        self._rooms: dict[Shape, Shape] = {}
        for batch in batches:
            shape, room = self._laid_out(layout.lengths(batch))[0], layout.words(batch)
            self._rooms[shape] = tuple(map(max, self._rooms.get(shape, room), room))

    def of(self, batch: Shape) -> tuple[Shape, bool]:
        shape, known = self._laid_out(self.layout.lengths(batch))
        words, room = self.layout.words(batch), self._rooms.get(shape)
        if room is None or _fitting([room], words) is None:
            return self.layout.full(shape), known and not words
        return (*shape, *room), known

    def rows(self, lengths: tuple[int, ...]) -> int:
        """How many rows a full batch of these lengths has."""
        return self._laid_out(lengths)[0][0]

    def _laid_out(self, lengths: Shape) -> tuple[Shape, bool]:
        """Rows and lengths for a batch of these lengths, and whether its lengths are chosen ones."""
        row = (1, *lengths)
        fitting = _fitting(self.chosen, row)
        shape = fitting or bucketed(row)
        return (max(1, self._sizes(shape[1:])), *shape[1:]), fitting is not None


def by_cost(shapes: Iterable[Shape], layout: PaddedLayout) -> tuple[Shape, ...]:
    """Each shape once, the cheapest first."""
    return tuple(sorted(set(shapes), key=lambda shape: (int(layout.costs(shape)), shape)))


def _fitting(shapes: Iterable[Shape], batch: Shape) -> Shape | None:
    """The first shape that a batch fits into."""
    return next((shape for shape in shapes if all(map(int.__le__, batch, shape))), None)


def choose(batches: Mapping[Shape, int], layout: PaddedLayout = PADDED) -> list[Shape]:
    """At most 12 shapes that all of ``batches`` fit into, with little padding.

    Up to 16 if 12 waste more than 15 % of the positions, as they may if the rows of a batch depend on its
    words.

    batches: the number of batches of each shape. Starting from these shapes, merge the pair that adds the
    fewest positions until few are left. Then assign each batch to the smallest shape that it fits into, and
    shrink the shapes to their batches.
    """
    if not batches:
        return []
    chosen = _merged(*_candidates(batches), layout, _cost(batches, layout) / (1 - WASTE))
    while True:
        needs: dict[Shape, Shape] = {}
        shapes = Shapes(chosen, layout)
        for batch in batches:
            shape, _ = shapes.of(batch)
            needs[shape] = tuple(map(max, needs.get(shape, batch), batch))
        found = sorted(needs.values())
        if found == chosen:
            return chosen
        chosen = found


def worth_compiling(
    chosen: Iterable[Shape],
    epoch: Mapping[Shape, float],
    number: int,
    layout: PaddedLayout = PADDED,
    program: float = PROGRAM,
) -> list[Shape]:
    """The chosen shapes that are worth compiling a program for in epoch ``number``, from 1.

    A shape is left out, and its batches are padded to other shapes, until the positions that this adds in the
    epochs so far cost as much as its program; but not if it would waste too many positions. So a short
    training compiles few programs, and a long one compiles all.

    epoch: how many batches of each shape an epoch has. program: the cost of one program, in positions.
    """
    shapes = by_cost(chosen, layout)
    counts, costs = np.array([*epoch.values()]), layout.costs(shapes)
    needs = np.array([*epoch])[:, None, :]
    fits = np.all(needs <= np.array(shapes), axis=-1)
    enough = _cost(epoch, layout) / (1 - WASTE_AT_FIRST)

    def positions(left: list[int]) -> float:
        own = fits[:, left]
        return float((costs[left][own.argmax(1)] * counts).sum()) if own.any(1).all() else np.inf

    left = [*range(len(shapes))]
    now = positions(left)
    while len(left) > 1:
        fewer = [[other for other in left if other != one] for one in left]
        least = min(fewer, key=positions)
        after = positions(least)
        if after > enough or (after - now) * number >= program:
            break
        left, now = least, after
    return [shapes[i] for i in left]


def _candidates(batches: Mapping[Shape, int]) -> tuple[np.ndarray, np.ndarray]:
    """The shapes and their counts, as arrays; rounded up if there are too many shapes."""
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


def _cost(batches: Mapping[Shape, float], layout: PaddedLayout) -> float:
    """The cost of batches of exactly these sizes."""
    return sum(float(layout.costs(batch)) * count for batch, count in batches.items())


def _merged(shapes: np.ndarray, counts: np.ndarray, layout: PaddedLayout, enough: float) -> list[Shape]:
    """Merge shapes greedily until 12 are left, or up to 16 if fewer exceed ``enough`` positions."""

    def added(one: int) -> np.ndarray:
        """The positions added by merging ``one`` with each other shape."""
        merged = layout.costs(np.maximum(shapes[one], shapes)) * (counts[one] + counts)
        own = layout.costs(shapes) * counts
        return np.asarray(merged - own - own[one])

    never = np.iinfo(np.int64).max
    costs = np.stack([added(one) for one in range(len(shapes))])
    np.fill_diagonal(costs, never)
    left, positions = len(shapes), int((layout.costs(shapes) * counts).sum())
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
