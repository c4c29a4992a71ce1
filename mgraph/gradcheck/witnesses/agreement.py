"""Whether numbers agree, each within its own bound, and how far off the worst is."""

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
    def off(self) -> float:
        """The difference between ``found`` and ``expected``."""
        return float(distance(self.found, self.expected))

    @property
    def wrong(self) -> bool:
        """Whether the gradient is off by more than the bound, or not finite."""
        return not self.off <= self.bound

    @property
    def clarity(self) -> float:
        """The error, as a multiple of the least difference that can be seen."""
        return self.off / self.bound if self.off < math.inf and self.bound else math.inf

    def __str__(self) -> str:
        size = abs(self.expected)
        unit = size if 0 < size < math.inf else 1.0
        place = f" at {list(self.where)}" if self.where else ""
        if math.isnan(self.found) and math.isnan(self.expected):
            return f"nan{place}"
        if math.isnan(self.off):
            return f"{self.found:.1e} instead of {self.expected:.1e}{place}"
        return f"wrong by {self.off / unit:.1e}{place}, can see {self.bound / unit:.1e}"


@dataclass(frozen=True)
class Answer:
    """What a question to a witness found about the gradient with respect to one input."""

    differences: Mapping[str, float]
    """For each witness the largest difference, relative to the scale of the input's gradient."""
    allowed: Mapping[str, float] = field(default_factory=dict)
    """For witnesses that know their error, the least difference that can be seen, relative to the same
    scale."""
    findings: Mapping[str, Finding] = field(default_factory=dict)
    kinks: tuple[Kink, ...] = ()
    taylor: Taylor | None = None


def distance(found: Any, expected: Any) -> Any:
    """``|found - expected|``, element by element; 0 for equal infinities."""
    with np.errstate(invalid="ignore"):
        return np.where(found == expected, 0.0, np.abs(found - expected))


def worst(found: Any, expected: Any, bound: Any) -> int:
    """The index of the largest difference among those that exceed their bounds, or else among all."""
    off = distance(found, expected)
    wrong = ~(off <= bound)
    off = np.where(np.isfinite(off), off, np.inf)
    return int(np.argmax(np.where(wrong, off, -1.0) if wrong.any() else off))


def relative(found: Any, expected: Any, scale: float) -> float:
    """Largest difference over ``scale``; infinite where a value is not finite, unless both are the same
    infinity."""
    return ratio(float(np.max(distance(np.asarray(found), np.asarray(expected)), initial=0.0)), scale)


def finite(array: Any) -> Any:
    """The array with 0 in place of elements that are not finite."""
    return np.nan_to_num(np.asarray(array), posinf=0.0, neginf=0.0)


def ratio(difference: float, scale: float) -> float:
    """``difference / scale``; 0 for no difference, infinite for one that is not finite or a scale of 0."""
    if difference == 0:
        return 0.0
    return difference / scale if scale and math.isfinite(difference) else math.inf


def scales(gradients: Sequence[Any], magnitude: Any) -> list[float]:
    """The scale of each gradient's differences: its largest finite element, but no less than what rounding
    can blur, in the other gradients or in the terms of the output (``magnitude`` is the sum of their absolute
    values)."""
    sizes = [float(np.max(np.abs(finite(g)), initial=0.0)) for g in gradients]
    least = max(1e-4 * max(sizes, default=0.0), 1e-5 * float(magnitude))
    return [max(size, least) for size in sizes]


def same_bits(first: Any, second: Any) -> bool:
    """Whether two arrays are the same to the last bit."""
    return np.asarray(first).tobytes() == np.asarray(second).tobytes()
