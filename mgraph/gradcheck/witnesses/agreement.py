"""Whether numbers agree: each against a bound of its own, and how far the worst is off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .kinks import Kink
from .taylor import Taylor


@dataclass(frozen=True)
class Finding:
    """The gradient where it is farthest from what a witness expects."""

    where: tuple[int, ...] | None
    """The element of the input; ``None`` for the slope along a random line."""
    found: float
    expected: float
    bound: float
    """The least difference that can be seen there."""

    @property
    def wrong(self) -> bool:
        """Whether the gradient is off by more than the bound, or not finite."""
        return not abs(self.found - self.expected) <= self.bound

    @property
    def clarity(self) -> float:
        """How many times the least difference that can be seen the gradient is off."""
        off = abs(self.found - self.expected)
        return off / self.bound if off < math.inf and self.bound else math.inf

    def __str__(self) -> str:
        size = abs(self.expected)
        unit = size if 0 < size < math.inf else 1.0
        place = f" at {list(self.where)}" if self.where else ""
        off = abs(self.found - self.expected) / unit
        return f"wrong by {off:.1e}{place}, can see {self.bound / unit:.1e}"


@dataclass(frozen=True)
class Answer:
    """What a question to a witness found about the gradient by one input."""

    differences: Mapping[str, float]
    """For each witness the largest difference, relative to the scale of the input's gradient."""
    allowed: Mapping[str, float] = field(default_factory=dict)
    """For witnesses that know their error, the least difference that can be seen, relative to the same."""
    findings: Mapping[str, Finding] = field(default_factory=dict)
    kinks: tuple[Kink, ...] = ()
    taylor: Taylor | None = None


def worst(found: Any, expected: Any, bound: Any) -> int:
    """The index of the largest difference among those that exceed their bounds, or else among all."""
    with np.errstate(invalid="ignore"):
        off = np.abs(found - expected)
        wrong = ~(off <= bound)
    off = np.where(np.isfinite(off), off, np.inf)
    return int(np.argmax(np.where(wrong, off, -1.0) if wrong.any() else off))


def relative(found: Any, expected: Any, scale: float) -> float:
    """Largest difference over ``scale``; infinite where a value is not finite."""
    found, expected = np.asarray(found), np.asarray(expected)
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return math.inf
    difference = float(np.max(np.abs(found - expected), initial=0.0))
    return ratio(difference, scale)


def ratio(difference: float, scale: float) -> float:
    """``difference / scale``, infinite if the difference is not finite, and 0 for none of nothing."""
    if difference == 0:
        return 0.0
    return difference / scale if scale and math.isfinite(difference) else math.inf


def scales(gradients: Sequence[Any], magnitude: Any) -> list[float]:
    """What differences of each gradient are relative to: its largest element, but no less than what rounding
    in the others, or in the terms of the output (whose sum of absolute values is ``magnitude``), can blur.
    """
    sizes = [float(np.max(np.abs(np.asarray(g)), initial=0.0)) for g in gradients]
    least = max(1e-4 * max(sizes), 1e-5 * float(magnitude))
    return [max(size, least) for size in sizes]


def same_bits(first: Any, second: Any) -> bool:
    """Whether two arrays are the same to the last bit."""
    return np.asarray(first).tobytes() == np.asarray(second).tobytes()
