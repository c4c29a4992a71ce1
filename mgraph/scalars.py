"""Operators' numbers as an argument of a program: one vector for all, split into scalars inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.core.primitives import convert_element_type_p


def number_vector(numbers: Sequence[float], wide: bool) -> np.ndarray | None:
    """The vector of these numbers, float64 for a program with 64-bit types; ``None`` without numbers."""
    with np.errstate(over="ignore"):
        return np.array(numbers, np.float64 if wide else np.float32) if numbers else None


def weak_scalars(vector: Any) -> list[Any]:
    """The elements of a vector, weakly typed like Python's numbers: operands keep their element type."""
    return [
        convert_element_type_p.bind(number, new_dtype=number.dtype, weak_type=True, sharding=None)
        for number in vector
    ]
