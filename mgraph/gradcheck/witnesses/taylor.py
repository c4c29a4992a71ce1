"""Taylor remainders: what is left of a function's change after the part that its gradient predicts.

``|f(x + h v) - f(x) - h g v|`` falls as ``h**2`` if ``g`` is the gradient, and as ``h`` if it is not: a line
of slope 2 or 1 in a plot with logarithmic axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_CLEAR = 30.0
"""A remainder counts if it is larger than this many roundings."""
_SHOWN = 4
"""A report on up to this many inputs shows each slope."""
_FEWEST, _FITTED = 3, 5
"""The fewest remainders that a slope needs, and the most that it is fitted to, at the shortest steps."""


@dataclass(frozen=True)
class Taylor:
    """Remainders along a random line through one input."""

    steps: tuple[float, ...]
    """Lengths of the steps, the longest first."""
    remainders: tuple[float, ...]
    slope: float | None
    """The slope of the remainders over the steps, both logarithmic: 2 for a right gradient (more where the
    curvature is zero), 1 for a wrong one. ``None`` if the remainders are only rounding, as for an affine
    function, or cannot be computed."""

    def __str__(self) -> str:
        if self.slope is not None:
            return f"slope {self.slope:.2f}"
        return "no remainder (affine)" if np.isfinite(self.remainders).all() else "not finite"


def about_slopes(found: Sequence[tuple[str, Taylor]]) -> list[str]:
    """A line about the remainders of named inputs, if there are any."""
    if not found:
        return []
    slopes = [taylor.slope for _, taylor in found if taylor.slope is not None]
    if len(found) <= _SHOWN or not slopes:
        return [f"Taylor: {', '.join(f'{name} {taylor}' for name, taylor in found[:_SHOWN])}"]
    return [f"Taylor: slopes from {min(slopes):.2f} to {max(slopes):.2f} for {len(slopes)} of {len(found)}"]


def taylor_of(steps: Any, changes: Any, expected: float, rounding: float) -> Taylor:
    """The remainders of a function's ``changes`` at ``steps``, beyond what a slope ``expected`` predicts.

    ``rounding`` is the rounding of the changes.
    """
    with np.errstate(all="ignore"):
        remainders = np.abs(changes - steps * expected)
        floor = rounding + np.finfo(np.float64).eps * np.abs(steps * expected)
        clear = np.flatnonzero(np.isfinite(remainders) & (remainders > _CLEAR * floor))[-_FITTED:]
    slope = None
    if len(clear) >= _FEWEST:
        slope = float(np.polyfit(np.log(steps[clear]), np.log(remainders[clear]), 1)[0])
    return Taylor(tuple(map(float, steps)), tuple(map(float, remainders)), slope)
