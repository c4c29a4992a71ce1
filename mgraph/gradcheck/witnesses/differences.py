"""Slopes along lines by Richardson extrapolation, each with a bound on its error.

A line is sampled at a point and on both sides of it, at steps that are halved again and again. Central
differences ``(y(h) - y(-h)) / 2h`` of a smooth function are off by a series in ``h**2``, one-sided ones by a
series in ``h``; extrapolation removes term after term (Richardson 1911, Romberg 1955). How far the last term
moved the result, and how far shorter steps move it, bounds the rest of the series, the **truncation**, unless
these moves do not shrink with the steps: then the steps are too long, and nothing is known. The
**rounding** of an output, at least its last place, is measured where the steps are so small that nothing else
moves the extrapolation. The slope is the entry of the table with the least sum of truncation and rounding.

Outputs are judged one by one and contracted with the adjoint afterwards, so outputs that do not move along a
line add no rounding to its slope.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

LEVELS = 13
"""Steps of a ladder, each half the one before."""
LADDERS = tuple(15 / 64 * 2.0 ** (-LEVELS * i) for i in range(3))
"""The first step of each ladder, relative to the size of the elements that are moved. Where the steps of one
ladder are too long, because they cross a kink or leave the range where the series converges, the next ladder
is taken."""
SAMPLES = 1 + 2 * LEVELS
"""Samples of a line: the point itself, the steps forward, the steps backward."""

_ORDERS = 5
"""The most terms of the series that are removed."""
_CONFIRMED = 2
"""How many shorter steps must agree with an entry: kinks within a few steps may make two agree by chance."""
_SHRINKING = 0.6
"""A series converges if half the step moves the result at most this many times as far; that of a smooth
function does so half as far. Where steps are too long, as for the logarithm of a tiny number, it does not."""
_NOISE = 4.0
"""An extrapolated difference of two outputs may be off by this many of their roundings."""
_APART = 3.0
"""One-sided slopes that differ by more than this many times their bound show a kink."""
_ROUNDING = float(np.finfo(np.float64).eps)

Array = np.ndarray[Any, np.dtype[np.float64]]


def offsets(ladder: int) -> Array:
    """Where a line is sampled, relative to the size of the elements that are moved."""
    steps = LADDERS[ladder] * 0.5 ** np.arange(LEVELS)
    return np.concatenate([[0.0], steps, -steps])


@dataclass(frozen=True)
class Slopes:
    """Slopes of outputs along lines: arrays of one row per line and one column per output."""

    value: Array
    bound: Array
    """How far the slope may be from the true one; infinite where nothing could be measured."""
    left: Array
    """The slope on the side of negative steps."""
    right: Array
    side_bound: Array
    """The bound for ``left`` and ``right`` together."""
    kinked: np.ndarray[Any, np.dtype[np.bool_]]
    """Where the slopes of the two sides differ by more than their bounds."""
    moved: np.ndarray[Any, np.dtype[np.bool_]]
    """Where the output is not the same at all samples, to the last bit."""
    rounded: np.ndarray[Any, np.dtype[np.bool_]]
    """Where rounding is most of the bound: shorter steps would not help."""
    noise: Array
    """The rounding of the output."""
    crossed: Array
    """The shortest step at which the slope suddenly changes, as where a line crosses a kink; 0 where there is
    none."""
    jumped: np.ndarray[Any, np.dtype[np.bool_]]
    """Where all steps cross a kink: without steps, both sides' mean does not become the output at the
    point."""

    def refined(self, finer: Slopes) -> Slopes:
        """These slopes, or the ``finer`` ones where these crossed a kink or are less exact."""
        better = finer.bound < self.bound
        chosen = np.where(self.kinked | (self.jumped & ~finer.jumped), np.isfinite(finer.bound), better)
        fields = {
            name: np.where(chosen, getattr(finer, name), getattr(self, name))
            for name in vars(self)
            if name not in ("moved", "crossed")
        }
        crossed = np.where(finer.crossed > 0, finer.crossed, self.crossed)
        resolved = self.kinked & ~fields["kinked"] & (crossed == 0)
        crossed = np.where(resolved, LADDERS[-1], crossed)
        return replace(self, **fields, moved=self.moved | finer.moved, crossed=crossed)


def slopes_of(samples: Array, steps: Array) -> Slopes:
    """The slopes of ``samples`` [lines, SAMPLES, outputs] taken at ``steps`` [lines, LEVELS] and their
    opposites."""
    with np.errstate(all="ignore"):
        centre, ahead, behind = samples[:, 0], samples[:, 1 : LEVELS + 1], samples[:, LEVELS + 1 :]
        moved = (samples != centre[:, None]).any(1) & ~np.isnan(samples).all(1)
        h = np.moveaxis(steps[:, :, None], 1, 0)
        ahead, behind = np.moveaxis(ahead, 1, 0), np.moveaxis(behind, 1, 0)
        central = (ahead - behind) / (2 * h)
        size = np.max(np.abs(np.where(np.isfinite(samples), samples, 0.0)), axis=1)
        noise = np.maximum(_ROUNDING * size, _fluctuation(central, h))
        value, bound, rounded = _extrapolated(central, h, 4.0, noise)
        right, right_bound, _ = _extrapolated((ahead - centre) / h, h, 2.0, noise)
        left, left_bound, _ = _extrapolated((centre - behind) / h, h, 2.0, noise)
        one_sided = ~np.isfinite(bound) & np.isfinite(np.minimum(right_bound, left_bound))
        nearer = np.where(right_bound <= left_bound, right, left)
        value = np.where(one_sided, nearer, value)
        bound = np.where(one_sided, np.minimum(right_bound, left_bound), bound)
        value = np.where(np.isnan(value) & np.isinf(bound), 0.0, value)  # anything within an infinite bound
        side_bound = right_bound + left_bound
        kinked = moved & np.isfinite(side_bound) & (np.abs(right - left) > _APART * side_bound)
        crossed = _crossed(central, h, value, bound, noise)
        mean, mean_bound, _ = _extrapolated((ahead + behind) / 2, np.ones_like(h), 4.0, noise)
        jumped = moved & np.isfinite(mean_bound) & (np.abs(mean - centre) > _APART * mean_bound)
    sides = left, right, side_bound
    return Slopes(value, bound, *sides, kinked, moved, rounded | ~moved, noise, crossed, jumped)


def _extrapolated(column: Array, h: Array, base: float, noise: Array) -> tuple[Array, Array, Any]:
    """The best entry of Romberg's table, its bound, and whether that is mostly rounding."""
    best, bound = column[-1], np.full(column.shape[1:], np.inf)
    rounded = np.zeros(bound.shape, bool)
    for order in range(1, _ORDERS + 1):
        finer = column[1:]
        found = finer + (finer - column[:-1]) / (base**order - 1)
        here = found[:-_CONFIRMED]
        others = [column[: len(here)], *(found[k : k + len(here)] for k in range(1, _CONFIRMED + 1))]
        truncation = np.max([np.abs(here - other) for other in others], axis=0)
        rounding = _NOISE * noise / h[order : order + len(here)]
        first, second = np.abs(found[1:-1] - here), np.abs(found[2:] - found[1:-1])
        converging = (second <= _SHRINKING * first) | (truncation <= _NOISE * rounding)
        total = truncation + rounding
        total = np.where(np.isfinite(total) & converging, total, np.inf)
        at = np.argmin(total, axis=0)[None]
        least = np.take_along_axis(total, at, 0)[0]
        better = least < bound
        best = np.where(better, np.take_along_axis(found, at, 0)[0], best)
        few = np.take_along_axis(np.broadcast_to(2 * rounding, total.shape), at, 0)[0] >= least
        rounded = np.where(better, few, rounded)
        bound = np.where(better, least, bound)
        column = found
    return best, bound, rounded


def _fluctuation(central: Array, h: Array) -> Array:
    """The rounding of outputs, from the scatter of third-order extrapolations at the shortest steps."""
    for order in (1, 2):
        central = central[1:] + (central[1:] - central[:-1]) / (4.0**order - 1)
    scatter = np.abs(np.diff(central, axis=0))[-3:] * h[-3:]
    return np.asarray(np.max(np.where(np.isfinite(scatter), scatter, 0.0), axis=0))


def _crossed(central: Array, h: Array, value: Array, bound: Array, noise: Array) -> Array:
    """The shortest step whose difference departs from the slope suddenly.

    The difference of a smooth function departs gradually, as ``h**2``: by a quarter at half the step.
    """
    away = np.abs(central - value)
    floor = bound + _NOISE * noise / h
    there = away <= 16 * floor
    sudden = (away[:-2] > 1e3 * floor[:-2]) & (away[:-2] > 64 * away[1:-1]) & there[1:-1] & there[2:]
    shortest = np.where(sudden, np.broadcast_to(h[:-2], sudden.shape), np.inf).min(axis=0)
    return np.where(np.isfinite(shortest), shortest, 0.0)
