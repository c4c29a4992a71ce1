"""Axes of an ONNX model whose size is known only when it runs.

A graph is recorded with sizes that are numbers. Axes that stay open are recorded with sizes that no other
axis has, preferably primes, so that every size in the graph can be factored: with 1999 for length, 7996 is
four times the length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...shape import Shape
from ..errors import BridgeError

_NEAR = 32


class Size(NamedTuple):
    """``factor`` times the sizes of ``axes``."""

    factor: int
    axes: tuple[str, ...] = ()

    def __str__(self) -> str:
        numbers = [str(self.factor)] if self.factor != 1 or not self.axes else []
        return "*".join([*numbers, *self.axes])


class OpenAxes:
    """The open axes by name, each with the size it was recorded with.

    ``BridgeError`` for sizes that cannot be distinguished from the ``known`` sizes of parameters.
    """

    def __init__(self, sizes: Mapping[str, int], known: Iterable[int]) -> None:
        self.sizes = dict(sizes)
        self._known = frozenset(known)
        for name, size in self.sizes.items():
            others = [n for other, n in self.sizes.items() if other != name]
            clash = [n for n in (*self._known, *others) if n and n % size == 0]
            if size < 2 or clash:
                raise BridgeError(
                    f"axis {name!r} was recorded with the size {size}, which cannot be distinguished from "
                    f"{clash or 1}; record it with another one, preferably a large prime"
                )

    def size(self, number: int) -> Size:
        """The factors of a number; ``BridgeError`` for a number close to an open size but not a multiple of
        it."""
        axes: list[str] = []
        rest = number
        for name, size in self.sizes.items():
            while rest and rest % size == 0:
                rest //= size
                axes.append(name)
        if not axes and number not in self._known:
            for name, size in self.sizes.items():
                if abs(number - size) <= _NEAR:
                    raise BridgeError(
                        f"a size of {number} seems to be {number - size:+d} from axis {name!r}, recorded "
                        f"with {size}: sums with open sizes cannot be written"
                    )
        return Size(rest, tuple(axes))

    def is_open(self, shape: Shape) -> bool:
        """Whether a shape has an open axis."""
        return any(self.size(n).axes for n in shape)


def distinct_primes(count: int, known: Iterable[int], start: int = 1999) -> list[int]:
    """``count`` primes from ``start`` on that divide none of the ``known`` sizes and are near none."""
    known = set(known)
    found: list[int] = []
    number = start
    while len(found) < count:
        prime = all(number % k for k in range(2, math.isqrt(number) + 1))
        apart = all(abs(n - number) > _NEAR and (n == 0 or n % number) for n in known)
        if prime and apart and all(abs(n - number) > _NEAR for n in found):
            found.append(number)
        number += 1
    return found
