"""Pictures of slopes as SVG: Taylor remainders over the lengths of steps, both logarithmic."""

from __future__ import annotations

import math
from typing import Any

WIDTH, HEIGHT = 260, 176
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 8, 30
_GUIDES = (1, 2)
"""The slopes of a wrong and of a right gradient, drawn from the longest step."""


def picture(taylor: Any) -> str:
    """The remainders of ``taylor`` (``steps``, ``remainders``, ``slope``) next to lines of slope 1 and 2.

    Remainders that are zero or not finite have no point. The picture is empty for fewer than two points, or
    without a slope: the remainders of an affine function are only rounding.
    """
    if taylor is None or taylor.slope is None:
        return ""
    pairs = zip(taylor.steps, taylor.remainders, strict=True)
    points = sorted((math.log10(s), math.log10(r)) for s, r in pairs if 0 < s < math.inf and 0 < r < math.inf)
    if len(points) < 2:
        return ""
    xs, ys = zip(*points, strict=True)
    frame = _Frame(min(xs), max(xs), min(ys), max(ys))
    spots = [frame.place(x, y) for x, y in points]
    curve = " ".join(f"{left:.1f},{top:.1f}" for left, top in spots)
    marks = "".join(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="2.5"/>' for left, top in spots)
    return "".join(
        [
            f'<svg class="slope" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"',
            f' aria-label="Taylor remainders, slope {taylor.slope:.2f}">',
            *frame.axes(),
            *(_guide(frame, points[-1], slope) for slope in _GUIDES),
            f'<polyline class="curve" points="{curve}"/><g class="marks">{marks}</g></svg>',
        ]
    )


class _Frame:
    """Where the logarithms of steps and remainders are on the picture."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self._left, self._right = left, max(right, left + 1e-9)
        middle, half = (low + high) / 2, max((high - low) / 2, 0.5)
        self._low, self._high = middle - 1.05 * half, middle + 1.05 * half

    def place(self, x: float, y: float) -> tuple[float, float]:
        """The distances of a point from the left and from the top."""
        across = (x - self._left) / (self._right - self._left)
        up = (y - self._low) / (self._high - self._low)
        left = _LEFT + across * (WIDTH - _LEFT - _RIGHT)
        return left, HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM)

    def end(self, x: float, y: float, slope: float) -> tuple[float, float]:
        """Where a line that falls from a point to the left leaves the picture."""
        at_left = y + slope * (self._left - x)
        return (self._left, at_left) if at_left >= self._low else (x - (y - self._low) / slope, self._low)

    def axes(self) -> list[str]:
        """The two axes with the numbers at their ends."""
        floor, edge = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        middle = (_LEFT + edge) / 2
        return [
            f'<path class="axis" d="M{_LEFT},{_TOP}V{floor}H{edge}"/>',
            _text(_LEFT, floor + 12, "start", _power(self._left)),
            _text(edge, floor + 12, "end", _power(self._right)),
            _text(_LEFT - 4, floor - 1, "end", _power(self._low)),
            _text(_LEFT - 4, _TOP + 8, "end", _power(self._high)),
            _text(middle, HEIGHT - 6, "middle", "step"),
        ]


def _guide(frame: _Frame, start: tuple[float, float], slope: int) -> str:
    (right, top), (left, bottom) = frame.place(*start), frame.place(*frame.end(*start, slope))
    line = f'<path class="guide" d="M{right:.1f},{top:.1f}L{left:.1f},{bottom:.1f}"/>'
    return line + _text((left + right) / 2 + 4, (top + bottom) / 2 + 10, "start", str(slope))


def _text(left: float, top: float, anchor: str, text: str) -> str:
    return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}">{text}</text>'


def _power(exponent: float) -> str:
    return f"{10**exponent:.0e}"
