"""Operators' numbers as an argument of a program: one vector for all, split into scalars inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.core.primitives import convert_element_type_p

from .platforms import kept_apart

_PART = 4


def number_vector(numbers: Sequence[float], wide: bool) -> np.ndarray | None:
    """The vector of these numbers, float64 for a program with 64-bit types; ``None`` without numbers."""
    with np.errstate(over="ignore"):
        return np.array(numbers, np.float64 if wide else np.float32) if numbers else None


def taken_apart(vector: Any) -> list[Any]:
    """The elements of a vector, which on CPUs is first divided into vectors of four.

    XLA compiles equal kernels once. A kernel that takes its number from a vector of all numbers is equal to
    no other, and a graph of many equal layers then compiles two to three times as long. Smaller parts need
    more kernels that only copy; in larger ones, numbers are at more different places.
    """
    parts = (vector[start : start + _PART] for start in range(0, len(vector), _PART))
    return [number for part in parts for number in kept_apart(part)]


def weak_scalars(vector: Any) -> list[Any]:
    """The elements of a vector, weakly typed like Python's numbers: operands keep their element type."""
    return [
        convert_element_type_p.bind(number, new_dtype=number.dtype, weak_type=True, sharding=None)
        for number in vector
    ]
