"""Comparison of results with arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


class Compared:
    """Base of dataclasses with arrays (``eq=False, slots=True``): equal if all fields are, arrays number by
    number, of which NaN equals NaN."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_equal(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    def __hash__(self) -> int:
        values = (getattr(self, name) for name in self.__slots__)
        return hash(tuple(value for value in values if not isinstance(value, np.ndarray)))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return one is other or bool(one == other)  # as in tuples, where math.nan equals itself
