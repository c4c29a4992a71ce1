"""The units of errors: units in the last place, and what a rounding of the inputs does to a result."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .report import Extreme


class Units:
    """The units in which errors of an array's numbers are counted, in an element type.

    ``moves`` is how far each number moves when the inputs are moved by a rounding.
    """

    def __init__(self, dtype: Any, moves: np.ndarray) -> None:
        limits = jnp.finfo(dtype)
        self._eps, self._max = float(limits.eps), float(limits.max)
        self._least = float(limits.tiny) * (self._eps if dtype == np.float16 else 1)
        self._moves = moves

    def ulps(self, exact: np.ndarray) -> np.ndarray:
        """The unit in the last place of each number, no less than the smallest number."""
        size = np.where(np.isfinite(exact), np.abs(exact), 0.0)
        return np.maximum(np.ldexp(self._eps, np.frexp(np.maximum(size, self._least))[1] - 1), self._least)

    def worst(self, found: np.ndarray, exact: np.ndarray, element: tuple[int, ...] | None = None) -> Extreme:
        """The number that is furthest off, among those that the type can represent, with room for sums; or
        the number at an ``element``."""
        found = found.astype(np.float64)
        judged = np.abs(exact) <= self._max / 4
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.where(judged & (found != exact), np.abs(found - exact), 0.0)
        off = np.where(np.isnan(off), np.inf, off)
        ulps = self.ulps(exact)
        unit = np.maximum(ulps, self._moves)
        roundings = off / unit
        if not roundings.size:
            return Extreme(0.0, 0.0, (), 0.0, 0.0)
        at = _largest_at(roundings) if element is None else element
        return Extreme(
            float(np.max(off / ulps)), float(roundings[at]), at, float(found[at]), float(exact[at])
        )

    def apart(self, one: np.ndarray, other: np.ndarray) -> tuple[int, ...] | None:
        """Where two exact results differ most; ``None`` if they differ by at most half a rounding wherever
        both are finite."""
        with np.errstate(invalid="ignore"):
            off = np.abs(one - other) / np.maximum(self.ulps(other), self._moves)
        off = np.where(np.isfinite(off), off, 0.0)
        return _largest_at(off) if np.any(off > 0.5) else None


def _largest_at(array: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(np.argmax(array), array.shape))
