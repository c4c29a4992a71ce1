"""Comparison of results with arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", bound=tuple[Any, ...])


class Compared:
    """Base of dataclasses with arrays (``eq=False, slots=True``): objects are equal if all fields are. Arrays
    are compared element by element, and NaN equals NaN."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_equal(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    def __hash__(self) -> int:
        return _hash(getattr(self, name) for name in self.__slots__)


def compared(kind: type[T]) -> type[T]:
    """Decorate a ``NamedTuple`` with arrays: its tuples are compared as ``Compared`` objects are."""

    def equal(self: T, other: object) -> bool:
        if not isinstance(other, tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(_equal, self, other))

    def unequal(self: T, other: object) -> bool:
        return NotImplemented if (same := equal(self, other)) is NotImplemented else not same

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", _hash)):
        setattr(kind, name, method)
    return kind


def _hash(values: Iterable[Any]) -> int:
    return hash(tuple(value for value in values if not isinstance(value, np.ndarray)))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return one is other or bool(one == other)  # as in tuples, where math.nan equals itself
