"""The lines along which inputs are moved, and whether a gradient has the slopes measured along them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .contraction import Contraction
from .differences import LADDERS, LEVELS, Array, Slopes, offsets, slopes_of
from .kinks import Kink
from .taylor import Taylor, taylor_of

ELEMENTWISE = 48
"""Inputs up to this many elements are moved one element at a time, larger ones along random lines."""
_GROUPS = 12
"""Lines through a larger input; each moves elements whose gradients are of about the same size."""
_MOST_GROUPS = 96
"""The most such lines through all inputs together, but at least two through each."""
_CLEAR = 1e-6
"""A bound of at most this fraction of the slope is tight enough; otherwise shorter steps are tried."""
_TURNS = 8
"""How many random directions lead away from a kink to the smooth pieces around it."""

Samples = Callable[[Callable[[Any], list[Any]], Array], Any]
"""Gives outputs along lines, as ``Contraction.samples`` does; a constant may be missing from each."""


@dataclass(frozen=True)
class Line:
    """A direction in which one input is moved; its largest number is 1."""

    input: int
    direction: np.ndarray[Any, Any]
    """In the shape of the input."""
    element: tuple[int, ...] | None = None
    """The element that is moved, if it is one."""

    def along(self, gradients: Sequence[Any], absolute: bool = False) -> float:
        """The slope along this line, given a gradient for each input; with ``absolute``, the sum of its
        terms' absolute values."""
        with np.errstate(invalid="ignore"):
            terms = np.where(self.direction != 0, self.direction * np.asarray(gradients[self.input]), 0.0)
            return float(np.sum(np.abs(terms) if absolute else terms))

    @property
    def length(self) -> float:
        """The sum of the direction's absolute values."""
        return float(np.sum(np.abs(self.direction)))


def element_line(point: Sequence[Any], i: int, element: int) -> Line:
    """The line that moves one element of the i-th input."""
    direction = np.zeros(point[i].size)
    direction[element] = 1.0
    where = tuple(map(int, np.unravel_index(element, point[i].shape)))
    return Line(i, direction.reshape(point[i].shape), where)


def lines_through(point: Sequence[Any], gradients: Sequence[Any], random: np.random.Generator) -> list[Line]:
    """Lines through every input: a random one that moves all elements, one that moves them all alike, and one
    for each element; in larger inputs, one for each group of elements with gradients of about the same size,
    so that small gradients are not lost among large ones.
    """
    groups = max(2, min(_GROUPS, _MOST_GROUPS // max(1, len(point))))
    found = []
    for i, (p, gradient) in enumerate(zip(point, gradients, strict=True)):
        if p.size == 0:
            continue
        if p.size <= ELEMENTWISE:
            found += [element_line(point, i, k) for k in range(p.size)]
        else:
            order = np.argsort(np.abs(np.asarray(gradient)).reshape(-1), kind="stable")
            for group in np.array_split(order, groups):
                direction = np.zeros(p.size)
                direction[group] = random.standard_normal(len(group))
                found.append(_line(i, direction, p.shape))
        found.append(_line(i, random.standard_normal(p.size), p.shape))
        if p.size > 1:
            found.append(Line(i, np.ones(p.shape)))
    return found


def random_line(lines: Sequence[Line], i: int) -> int | None:
    """The index of the random line that moves all elements of the i-th input; ``None`` for an empty input."""
    dense = [k for k, line in enumerate(lines) if line.input == i and line.element is None]
    # After it comes the line that moves all elements alike, if there are several.
    return dense[-2:][0] if dense else None


def _line(i: int, direction: np.ndarray[Any, Any], shape: Any) -> Line:
    return Line(i, (direction / np.max(np.abs(direction))).reshape(shape))


@dataclass(frozen=True)
class Measured:
    """The slopes of all outputs along lines, contracted with the adjoint: one number per line."""

    lines: tuple[Line, ...]
    slopes: Slopes
    low: Array
    """The least slope that the rule may give: at a kink the lesser of both sides' slopes, else the slope."""
    high: Array
    bound: Array
    """How far outside of ``low`` and ``high`` the rule may be."""
    left: Array
    right: Array
    kinked: np.ndarray[Any, Any]
    """Whether the point is at a kink of the line."""
    crossed: Array
    """The shortest step that crosses a kink, 0 for none."""
    taylor: tuple[Taylor | None, ...]
    """The remainders of the random line through each input."""

    def nearest(self, expected: Array) -> Array:
        """The measured slopes; at kinks, the slopes between both sides nearest to the ``expected`` ones."""
        return np.clip(expected, self.low, self.high)

    def nearest_along(self, k: int, expected: float) -> float:
        """The same for the k-th line alone."""
        return float(np.clip(expected, self.low[k], self.high[k]))

    def kinked_by(self, i: int) -> bool:
        """Whether the point is at a kink of a line through the i-th input."""
        return any(kink and line.input == i for kink, line in zip(self.kinked, self.lines, strict=True))


def measured(
    problem: Contraction,
    lines: Sequence[Line],
    by_rule: Sequence[Any],
    noise: Sequence[Any],
    samples_of: Samples | None = None,
) -> Measured:
    """Slopes along ``lines``, with shorter steps where longer ones are not exact or disagree with the rule.

    ``noise``, the rounding of the rule's gradients, is part of the bounds. Outputs are those of the problem,
    or of ``samples_of``.
    """
    samples_of = samples_of or problem.samples
    adjoint = problem.weights
    slack = np.array([line.along(noise, absolute=True) for line in lines])
    expected = np.array([line.along(by_rule) for line in lines])
    sizes = np.array([_size(problem.point[line.input], line) for line in lines])
    samples, steps = _sampled(problem, samples_of, lines, sizes, 0)
    slopes = slopes_of(samples, steps)
    changes = samples[:, 1 : LEVELS + 1] - samples[:, :1]
    for ladder in range(1, len(LADDERS)):
        low, high, bound = _contracted(slopes, adjoint, slack)
        off = _distance(expected, low, high)
        with np.errstate(invalid="ignore"):
            unclear = bound > _CLEAR * np.maximum(np.abs(expected), np.abs(low))
        coarse = unclear & ~slopes.rounded.all(1)
        crossing = (slopes.kinked | slopes.jumped).any(1)
        again = np.flatnonzero((crossing | coarse | ~(off <= bound)) & slopes.moved.any(1))
        if not len(again):
            break
        finer = slopes_of(
            *_sampled(problem, samples_of, [lines[int(k)] for k in again], sizes[again], ladder)
        )
        slopes = _replaced(slopes, again, finer)
    low, high, bound = _contracted(slopes, adjoint, slack)
    of_inputs = [random_line(lines, i) for i in range(len(problem.point))]
    remainders = tuple(
        None if k is None else _remainders(slopes, adjoint, k, changes[k], steps[k], expected[k])
        for k in of_inputs
    )
    with np.errstate(invalid="ignore"):
        crossed = np.where(slopes.crossed > 0, slopes.crossed, np.inf)[:, adjoint != 0].min(1, initial=np.inf)
        kinked = (slopes.kinked & (adjoint != 0)).any(1)
        left, right = (np.where(slopes.moved, s, 0) @ adjoint for s in (slopes.left, slopes.right))
    crossed = np.where(np.isfinite(crossed), crossed, 0.0)
    return Measured(tuple(lines), slopes, low, high, bound, left, right, kinked, crossed, remainders)


def kinks_of(found: Measured, i: int, by_rule: Sequence[Any], by_jax: Sequence[Any]) -> tuple[Kink, ...]:
    """The kinks that lines through the i-th input cross."""
    kinks = []
    for k, line in enumerate(found.lines):
        if line.input != i:
            continue
        if found.kinked[k]:
            sides = float(found.left[k]), float(found.right[k])
            kinks.append(Kink(line.element, 0.0, *sides, line.along(by_rule), line.along(by_jax)))
        elif found.crossed[k]:
            kinks.append(Kink(line.element, float(found.crossed[k])))
    return tuple(kinks)


def slopes_of_pieces(
    problem: Contraction, line: Line, noise: Sequence[Any]
) -> tuple[float, float, float] | None:
    """The least and the largest slope along ``line`` of the smooth pieces around a kink, and their bound;
    ``None`` if all pieces have the same slope.

    Away from the kink in the direction ``u``, the slope along ``d`` is ``(f'(u + s d) - f'(u - s d)) / 2 s``,
    where ``f'`` is the one-sided slope at the kink. For any ``u`` and ``s``, it is a mean of slopes near the
    kink (Lebourg's mean value theorem), and so one that a generalized gradient (Clarke) has. One direction
    moves elements apart in their order, as JAX's ``sort`` does with ties.
    """
    size = line.direction.size
    random, s = np.random.default_rng(size), 1 / (4 * size)
    away = [np.arange(1.0, size + 1) / size, *random.uniform(-1, 1, (_TURNS, size))]
    pairs = [[u.reshape(line.direction.shape) + t * line.direction for t in (s, -s)] for u in away]
    lines = [Line(line.input, direction) for pair in pairs for direction in pair]
    sizes = np.array([_size(problem.point[line.input], along) for along in lines])
    found = [slopes_of(*_sampled(problem, problem.samples, lines, sizes, k)) for k in range(len(LADDERS))]
    best = np.argmin([slopes.side_bound for slopes in found], axis=0)[None]
    left, right, bounds = (
        np.take_along_axis(np.stack([getattr(slopes, name) for slopes in found]), best, 0)[0]
        for name in ("left", "right", "side_bound")
    )
    weights = np.where(np.any([slopes.moved for slopes in found], axis=0), problem.weights, 0.0)
    with np.errstate(invalid="ignore"):
        ends = [np.where(weights != 0, weights * side, 0.0).sum(1).reshape(-1, 2) for side in (left, right)]
        each = np.concatenate([(pair[:, 0] - pair[:, 1]) / (2 * s) for pair in ends])
        bounds = np.where(weights != 0, np.abs(weights) * bounds, 0.0).sum(1).reshape(-1, 2).sum(1) / (2 * s)
        bounds = np.tile(bounds, 2) + line.along(noise, absolute=True)
        known = bounds <= _CLEAR * np.abs(each).max(where=np.isfinite(each), initial=0.0)
    if not known.any():
        return None
    low, high, bound = float(each[known].min()), float(each[known].max()), float(bounds[known].max())
    return (low, high, bound) if high - low > 2 * bound else None


def hidden_rounding(found: Measured, k: int, adjoint: Array) -> float:
    """What rounding may hide along the k-th line in outputs that did not move."""
    still = ~found.slopes.moved[k]
    return float(np.abs(adjoint[still]) @ found.slopes.noise[k, still]) / LADDERS[0]


def _remainders(
    slopes: Slopes, adjoint: Array, k: int, changes: Array, steps: Array, expected: float
) -> Taylor:
    """The Taylor remainders of the k-th line, from how much outputs change at the steps."""
    moving = slopes.moved[k]
    with np.errstate(invalid="ignore"):
        change = changes[:, moving] @ adjoint[moving]
    return taylor_of(steps, change, expected, float(np.abs(adjoint[moving]) @ slopes.noise[k, moving]))


def _size(array: Any, line: Line) -> float:
    """The size of the elements that a line moves: a power of two, at least 1."""
    largest = float(np.max(np.abs(np.asarray(array)[line.direction != 0]), initial=1.0))
    return 2.0 ** round(math.log2(largest)) if math.isfinite(largest) else 1.0


def _sampled(
    problem: Contraction, samples_of: Samples, lines: Sequence[Line], sizes: Array, ladder: int
) -> tuple[Array, Array]:
    """Samples and steps of lines on one ladder."""

    def directions(rows: Any) -> list[Any]:
        chosen = [lines[k] for k in rows]
        return [
            np.stack([line.direction if line.input == i else np.zeros(p.shape) for line in chosen])
            for i, p in enumerate(problem.point)
        ]

    places = sizes[:, None] * offsets(ladder)
    return samples_of(directions, places), places[:, 1 : LEVELS + 1]


def _contracted(slopes: Slopes, adjoint: Array, slack: Array) -> tuple[Array, Array, Array]:
    """The least and the largest slope that are allowed, and their bound."""
    with np.errstate(invalid="ignore"):
        sides = np.stack([slopes.left, slopes.right]) * adjoint
        value = np.where(slopes.moved & (adjoint != 0), slopes.value * adjoint, 0.0)
        low = np.where(slopes.kinked, sides.min(0), value)
        high = np.where(slopes.kinked, sides.max(0), value)
        bounds = np.where(slopes.kinked, slopes.side_bound, slopes.bound) * np.abs(adjoint)
        bounds = np.where(slopes.moved & (adjoint != 0), bounds, 0.0)
    return low.sum(1), high.sum(1), bounds.sum(1) + slack


def _distance(expected: Array, low: Array, high: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.maximum(np.maximum(low - expected, expected - high), 0.0)


def _replaced(slopes: Slopes, rows: np.ndarray[Any, Any], finer: Slopes) -> Slopes:
    """``slopes`` with some rows refined."""
    old = Slopes(**{name: array[rows] for name, array in vars(slopes).items()})
    fields = {name: array.copy() for name, array in vars(slopes).items()}
    for name, array in vars(old.refined(finer)).items():
        fields[name][rows] = array
    return Slopes(**fields)
