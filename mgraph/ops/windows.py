"""Shared by convolution and pooling: windows that slide over height and width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from ..arrays import whole
from ..errors import ArgumentError, ShapeError
from ..shape import Shape
from ..specs import Spec
from .operands import FloatNodeOp

Pads = list[tuple[int, int]]
"""For height and width, how many elements are added before and after; a negative number takes some away."""


class WindowNodeOp(FloatNodeOp):
    """Base of operations on windows over the last two axes of x, (batch, channels, height, width).

    x is padded at both ends of an axis; a remainder that does not fill a window is left out.
    """

    pad_height: int = 0
    pad_width: int = 0
    stride_height: int = 1
    stride_width: int = 1

    @property
    def strides(self) -> tuple[int, int]:
        return self.stride_height, self.stride_width

    @property
    def pads(self) -> Pads:
        return [(self.pad_height, self.pad_height), (self.pad_width, self.pad_width)]

    def check_windows(self, x: Spec, window: Sequence[int]) -> None:
        """``ShapeError`` or ``ArgumentError`` if no window of this size fits into ``x``."""
        if len(x.shape) != 4:
            raise ShapeError(f"expected x as (batch, channels, height, width), got {x.shape}")
        if min(window) < 1 or min(self.strides) < 1 or min(self.pad_height, self.pad_width) < 0:
            raise ArgumentError(
                "windows and strides must be at least 1 and paddings at least 0, "
                f"got windows {tuple(window)}, "
                f"strides {self.strides}, paddings {(self.pad_height, self.pad_width)}"
            )
        padded = [n + sum(pad) for n, pad in zip(x.shape[2:], self.pads, strict=True)]
        if any(k > n for k, n in zip(window, padded, strict=True)):
            raise ShapeError(
                f"a window of {tuple(window)} does not fit into {tuple(padded)}, padding included"
            )

    def pads_back(self, x: Array, window: Sequence[int], adj: Array) -> Pads:
        """Pads for the adjoint, dilated by the strides: windows over it with stride 1 then cover, for each
        element of x, all windows that contained the element."""
        return [
            (k - 1 - low, n - 1 + low - (count - 1) * stride)
            for k, n, count, stride, (low, _) in zip(
                window, spatial(x), spatial(adj), self.strides, self.pads, strict=True
            )
        ]


def spatial(x: Array) -> Shape:
    """Height and width of ``x``."""
    return x.shape[2:]


def whole_numbers(op: str, **sizes: Any) -> dict[str, int]:
    """``sizes`` as ints; ``ArgumentError``, with the name, for a size that is not a whole number."""
    return {name: whole(op, name, size) for name, size in sizes.items()}
