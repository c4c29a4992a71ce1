"""Shapes, which are plain tuples of ints, and Marian's ``Slice``."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from .errors import ShapeError

Shape = tuple[int, ...]


def as_shape(value: Any) -> Shape:
    """A tuple of non-negative ints from an int or a sequence of ints; else ``ShapeError``."""
    # A tuple is iterable too, but that check alone would take longer than the rest.
    items: Iterable[Any] = value if isinstance(value, tuple | Iterable) else (value,)
    try:
        shape = tuple(map(operator.index, items))
    except TypeError:
        raise ShapeError(f"expected a shape such as (2, 3), got {value!r}") from None
    if min(shape, default=0) < 0:
        raise ShapeError(f"a shape has no negative sizes, got {shape}")
    return shape


@dataclass(frozen=True)
class Slice:
    """A half-open range ``[begin, end)`` along an axis; negative numbers count from the end.

    ``Slice(i)`` is the single position ``i`` (the axis stays, with size 1), ``Slice()`` everything,
    ``Slice(-2, Slice.END)`` the last two. Source: Marian, ``common/shape.h``.
    """

    begin: int = 0
    end: int | None = None
    stride: int = 1

    END: ClassVar[int] = 2**31 - 1

    def __init__(self, begin: int | None = None, end: int | None = None, stride: int = 1) -> None:
        if begin is None:
            begin, end = 0, self.END
        elif end is None:
            end = begin + 1 if begin != -1 else self.END
        object.__setattr__(self, "begin", begin)
        object.__setattr__(self, "end", end)
        object.__setattr__(self, "stride", stride)

    def bounds(self, size: int) -> tuple[int, int]:
        """``(begin, end)`` counted from the front of an axis of ``size``; ``ShapeError`` if that
        selects nothing or reaches outside."""
        last = self.END if self.end is None else self.end
        begin = self.begin + size if self.begin < 0 else self.begin
        end = size if last == self.END else last + size if last < 0 else last
        if self.stride < 1:
            raise ShapeError(f"a slice needs a stride of at least 1, got {self.stride}")
        if not 0 <= begin < end <= size:
            raise ShapeError(f"{self} selects nothing valid from an axis of size {size}")
        return begin, end
