"""Shapes, which are tuples of ints (those of nodes have Marian's methods), and Marian's ``Slice``."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, SupportsIndex, TypeAlias

from .errors import ShapeError
from .places import here

Shape = tuple[int, ...]
Sizes: TypeAlias = SupportsIndex | Iterable[SupportsIndex]
"""What ``as_shape`` takes."""


def as_shape(value: Any) -> Shape:
    """A tuple of non-negative ints from an int or a sequence of ints; else ``ShapeError``."""
    shape = as_sizes(value)
    if min(shape, default=0) < 0:
        hint = "; graph.partial_function takes unknown sizes" if -1 in shape else ""
        raise ShapeError(f"a shape cannot have negative sizes, got {shape}{hint}{here()}")
    return shape


def broadcasts_to(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether an array of ``shape`` can be repeated along axes of size 1, and along new axes in front, to
    the shape ``whole``."""
    ends = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in ends)


def as_sizes(value: Any) -> Shape:
    """A tuple of ints from an int or a sequence of ints; else ``ShapeError``."""
    # A tuple is iterable too, but that check alone would take longer than the rest.
    items: Iterable[Any] = value if isinstance(value, tuple | Iterable) else (value,)
    try:
        return tuple(map(operator.index, items))
    except TypeError:
        raise ShapeError(f"expected a shape such as (2, 3), got {value!r}{here()}") from None


@dataclass(frozen=True)
class Slice:
    """A half-open range ``[begin, end)`` along an axis; negative numbers count from the end.

    ``Slice(i)`` is the single position ``i`` (the axis stays, with size 1), ``Slice()`` everything,
    ``Slice(end=2)`` the first two, ``Slice(-2, Slice.END)`` the last two. ``ShapeError`` for bounds and
    strides that are not ints. Source: Marian, ``common/shape.h``.
    """

    begin: int
    end: int
    stride: int

    END: ClassVar[int] = 2**31 - 1

    def __init__(self, begin: int | None = None, end: int | None = None, stride: int = 1) -> None:
        try:
            begin, end = (None if part is None else operator.index(part) for part in (begin, end))
            stride = operator.index(stride)
        except TypeError:
            raise ShapeError(f"a slice takes whole numbers, got {begin!r} to {end!r} by {stride!r}") from None
        if end is None:
            end = self.END if begin in (None, -1) else begin + 1
        object.__setattr__(self, "begin", 0 if begin is None else begin)
        object.__setattr__(self, "end", end)
        object.__setattr__(self, "stride", stride)

    def bounds(self, size: int) -> tuple[int, int]:
        """``(begin, end)`` counted from the front of an axis of ``size``; ``ShapeError`` if that
        selects nothing or reaches outside."""
        begin = self.begin + size if self.begin < 0 else self.begin
        end = size if self.end == self.END else self.end + size if self.end < 0 else self.end
        if self.stride < 1:
            raise ShapeError(f"a slice needs a stride of at least 1, got {self.stride}")
        if not 0 <= begin < end <= size:
            raise ShapeError(f"{self} is not a valid slice of an axis of size {size}")
        return begin, end


class NodeShape(tuple[int, ...]):
    """The shape of a node: a tuple of sizes, equal to any tuple of the same sizes, with the methods of
    Marian's ``Shape``. Negative axes count from the end; ``ShapeError`` for an axis that does not exist or is
    not a whole number. Source: Marian, ``common/shape.h``.
    """

    __slots__ = ()

    def size(self) -> int:
        """The number of axes, as in Marian; ``elements`` is the number of elements."""
        return len(self)

    def elements(self) -> int:
        """The number of elements: the product of the sizes, 1 without axes."""
        return math.prod(self)

    def axis(self, axis: int) -> int:
        """The axis counted from the front."""
        try:
            axis = operator.index(axis)
        except TypeError:
            raise ShapeError(f"an axis must be a whole number, got {axis!r}") from None
        if not -len(self) <= axis < len(self):
            raise ShapeError(f"axis {axis} does not exist in a shape with {len(self)} axes")
        return axis % len(self)

    def dim(self, axis: int) -> int:
        """The size of an axis."""
        return self[self.axis(axis)]

    def back(self) -> int:
        """The size of the last axis."""
        return self.dim(-1)

    def stride(self, axis: int) -> int:
        """How many elements lie between neighbours along an axis, row-major."""
        return math.prod(self[self.axis(axis) + 1 :])

    def slice(self, part: Slice, axis: int) -> Slice:
        """The slice of an axis, both ends counted from the front; ``ShapeError`` if it selects nothing."""
        if not isinstance(part, Slice):
            raise ShapeError(f"expected a part of an axis such as Slice(1, 3), got {part!r}")
        return Slice(*part.bounds(self.dim(axis)), part.stride)

    def with_dim(self, axis: int, size: int) -> NodeShape:
        """A copy of this shape with another size along an axis; Marian's ``set`` changes the shape itself."""
        at = self.axis(axis)
        return NodeShape(as_shape((*self[:at], size, *self[at + 1 :])))

    def from_axes(self, axes: Iterable[int]) -> NodeShape:
        """This shape with size 1 along all other axes."""
        if not isinstance(axes, Iterable):
            raise ShapeError(f"expected axes such as (0, 2), got {axes!r}")
        kept = {self.axis(axis) for axis in axes}
        return NodeShape(n if i in kept else 1 for i, n in enumerate(self))

    def broadcast(self, *others: Shape) -> NodeShape:
        """The shape that this one and others broadcast to, aligned at the last axis; ``ShapeError`` if they
        do not fit."""
        shapes = (self, *map(as_shape, others))
        columns = [
            {shape[-i] for shape in shapes if i <= len(shape)} - {1}
            for i in range(max(map(len, shapes)), 0, -1)
        ]
        if any(len(sizes) > 1 for sizes in columns):
            raise ShapeError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        return NodeShape(next(iter(sizes), 1) for sizes in columns)

    def to_string(self) -> str:
        """Sizes and number of elements in Marian's layout: ``shape=2x3 size=6``."""
        return f"shape={'x'.join(map(str, self))} size={self.elements()}"
