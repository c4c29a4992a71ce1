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
# The relative error of a number rounded to float32.
_ROUNDING = 6e-8


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
            clash = [n for n in (*self._known, *others) if size > 1 and n and n % size == 0]
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

    def number(self, value: float, where: str) -> int | None:
        """The multiple of an open size that ``value`` is or, if it is below 1, that it is the reciprocal of;
        ``None`` for a number that has nothing to do with open sizes.

        Small sizes are left out: any number could come from them. ``BridgeError``, which names the line
        ``where`` the number is used, for one less than an open size, for its root or logarithm, and for a
        size that is no prime, which could be an ordinary number.
        """
        if not value or not math.isfinite(value):
            return None
        amount, error = (abs(value), 0.0) if abs(value) >= 1 else (1 / abs(value), _ROUNDING)
        whole, square = _whole(amount, error), _whole(amount * amount, 3 * _ROUNDING)
        for name, size in self.sizes.items():
            if size <= _NEAR or whole in self._known:
                continue
            if whole and whole % size == 0 and _is_prime(size):
                return whole
            forms = {
                "the size": whole == size,
                "one less than the size": whole == size - 1 and _is_prime(size),
                "the root of the size": square and square % size == 0 and _is_prime(size),
                "the logarithm of the size": math.isclose(amount, math.log(size), rel_tol=2 * _ROUNDING),
            }
            for form, found in forms.items():
                if found:
                    raise BridgeError(
                        f"the number {value:.6g}, used at {where}, seems to come from {form} of axis "
                        f"{name!r}, recorded with {size}, and would not follow it. Compute it in the graph, "
                        "from the sum of ones along the axis; if it has nothing to do with it, record the "
                        "axis with another size, preferably a large prime"
                    )
        return None

    def is_open(self, shape: Shape) -> bool:
        """Whether a shape has an open axis."""
        return any(self.size(n).axes for n in shape)


def _whole(amount: float, error: float) -> int | None:
    """The whole number that ``amount`` is, within its relative error; ``None`` if no or any number fits."""
    if amount >= 1 << 31 or error * amount > 0.25 or abs(amount - round(amount)) > error * amount:
        return None
    return round(amount)


def _is_prime(number: int) -> bool:
    return all(number % k for k in range(2, math.isqrt(number) + 1))


def distinct_primes(count: int, known: Iterable[int], start: int = 1999) -> list[int]:
    """``count`` primes from ``start`` on that divide none of the ``known`` sizes and are not close to any."""
    known = set(known)
    found: list[int] = []
    number = start
    while len(found) < count:
        apart = all(abs(n - number) > _NEAR and (n == 0 or n % number) for n in known)
        if _is_prime(number) and apart and all(abs(n - number) > _NEAR for n in found):
            found.append(number)
        number += 1
    return found
