"""Numbers of operators as an argument of a program: one vector for all, a scalar where one is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.core.primitives import convert_element_type_p


def number_vector(numbers: Sequence[float], wide: bool) -> np.ndarray | None:
    """What a program takes for these numbers, as float64 if it has 64-bit types; ``None`` for none at all."""
    with np.errstate(over="ignore"):
        return np.array(numbers, np.float64 if wide else np.float32) if numbers else None


def weak_scalars(vector: Any) -> list[Any]:
    """The elements of a vector, typed weakly as Python's numbers are: what they are combined with keeps its
    element type."""
    return [
        convert_element_type_p.bind(number, new_dtype=number.dtype, weak_type=True, sharding=None)
        for number in vector
    ]
