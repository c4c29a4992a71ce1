"""Pictures of slopes: Taylor remainders over the lengths of steps, both logarithmic, as SVG."""

from __future__ import annotations

import math
from typing import Any

WIDTH, HEIGHT = 260, 176
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 8, 30
_GUIDES = (1, 2)
"""The slopes of a wrong and of a right gradient, drawn from the longest step."""


def picture(taylor: Any) -> str:
    """The remainders of ``taylor`` (``steps``, ``remainders``, ``slope``) beside lines of slope 1 and 2.

    Remainders that are zero or not finite have no point. Nothing for fewer than two points.
    """
    if taylor is None:
        return ""
    pairs = zip(taylor.steps, taylor.remainders, strict=True)
    points = sorted((math.log10(s), math.log10(r)) for s, r in pairs if 0 < s < math.inf and 0 < r < math.inf)
    if len(points) < 2:
        return ""
    xs, ys = zip(*points, strict=True)
    frame = _Frame(min(xs), max(xs), min(ys), max(ys))
    lines = [_guide(frame, points[-1], slope) for slope in _GUIDES]
    curve = " ".join(frame.place(x, y) for x, y in points)
    marks = [f'<circle cx="{p[0]}" cy="{p[1]}" r="2.5"/>' for p in (frame.place(*q).split(",") for q in points)]
    says = "Taylor remainders" + ("" if taylor.slope is None else f", slope {taylor.slope:.2f}")
    return "".join(
        [
            f'<svg class="slope" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"',
            f' aria-label="{says}">',
            *frame.axes(),
            *lines,
            f'<polyline class="curve" points="{curve}"/><g class="marks">{"".join(marks)}</g></svg>',
        ]
    )


class _Frame:
    """Where the logarithms of steps and remainders are on the picture."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self._left, self._right = left, max(right, left + 1e-9)
        middle, half = (low + high) / 2, max((high - low) / 2, 0.5)
        self.low, self.high = middle - 1.05 * half, middle + 1.05 * half

    def place(self, x: float, y: float) -> str:
        across = (x - self._left) / (self._right - self._left)
        up = (y - self.low) / (self.high - self.low)
        left = _LEFT + across * (WIDTH - _LEFT - _RIGHT)
        return f"{left:.1f},{HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM):.1f}"

    def least(self, x: float, y: float, slope: float) -> tuple[float, float]:
        """Where a line through a point leaves the picture to the left, or at its bottom."""
        at_left = y + slope * (self._left - x)
        return (self._left, at_left) if at_left >= self.low else (x - (y - self.low) / slope, self.low)

    def axes(self) -> list[str]:
        floor = HEIGHT - _BOTTOM
        frame = f'<path class="axis" d="M{_LEFT},{_TOP}V{floor}H{WIDTH - _RIGHT}"/>'
        ticks = []
        for x, anchor in ((self._left, "start"), (self._right, "end")):
            left = self.place(x, self.low).split(",")[0]
            ticks.append(f'<text x="{left}" y="{floor + 12}" text-anchor="{anchor}">{_power(x)}</text>')
        for y, drop in ((self.low, 0), (self.high, 8)):
            top = self.place(self._left, y).split(",")[1]
            ticks.append(f'<text x="{_LEFT - 4}" y="{float(top) + drop:.1f}" text-anchor="end">{_power(y)}</text>')
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        ticks.append(f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
        return [frame, *ticks]


def _guide(frame: _Frame, start: tuple[float, float], slope: int) -> str:
    end = frame.least(*start, slope)
    line = f'<path class="guide" d="M{frame.place(*start)}L{frame.place(*end)}"/>'
    x, y = ((a + b) / 2 for a, b in zip(start, end, strict=True))
    left, top = frame.place(x, y).split(",")
    return f'{line}<text x="{float(left) + 4:.1f}" y="{float(top) + 10:.1f}" class="guide-name">{slope}</text>'


def _power(exponent: float) -> str:
    return f"{10**exponent:.0e}"
