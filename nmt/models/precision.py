"""Parameters in fewer bits: of 16 bits, or matrices of int8 with scales, made once when a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from layers import Parameter
from layers.products import MULTIPLIER, SCALE
from mgraph import ArgumentError, ParameterError, Type
from mgraph.files.intgemm import IntegerMatrix

FLOAT32, INT8 = "float32", "int8"
PRECISIONS = (FLOAT32, "float16", "bfloat16", INT8)
"""The types in which a model computes its products."""
MOST = np.float32(127)

Matrices = Mapping[str, "np.ndarray | IntegerMatrix"]


def check_precision(precision: str) -> str:
    """Return ``precision`` if it is known; ``ArgumentError`` otherwise."""
    if precision not in PRECISIONS:
        raise ArgumentError(f"expected a precision of {', '.join(PRECISIONS)}, got {precision!r}")
    return precision


def in_floats(params: Matrices) -> dict[str, np.ndarray]:
    """All parameters in floating point."""
    return {n: p.dequantized() if isinstance(p, IntegerMatrix) else p for n, p in params.items()}


def in_floats_of(params: Matrices, kind: str) -> dict[str, np.ndarray]:
    """All parameters as ``float32``, ``float16`` or ``bfloat16``."""
    with np.errstate(over="ignore"):
        return {n: p.astype(Type(kind).dtype, copy=False) for n, p in in_floats(params).items()}


def in_int8(
    params: Matrices, declared: Mapping[str, Parameter], multipliers: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The parameters, with each matrix that may be int8 as int8, and its scales.

    Matrices that are integers already keep their values, with one scale; others are rounded with a scale for
    each column, or, in embedding tables, for each row. ``multipliers`` has, by name of a matrix, the
    multiplier that quantizes the activations it multiplies. ``ParameterError`` for a matrix that is not
    finite.
    """
    found: dict[str, np.ndarray] = {}
    for name, matrix in params.items():
        axis = declared[name].contracted if name in declared else None
        if axis is None:
            found |= in_floats({name: matrix})
            continue
        values, scales = (
            _as_they_are(matrix, axis) if isinstance(matrix, IntegerMatrix) else _rounded(matrix, axis)
        )
        if not np.isfinite(scales).all():
            raise ParameterError(f"{name}: a matrix that is not finite cannot be held as int8")
        found |= {name: values, name + SCALE: scales}
        if name in multipliers:
            found[name + MULTIPLIER] = multipliers[name]
    return found


def _as_they_are(matrix: IntegerMatrix, axis: int) -> tuple[np.ndarray, np.ndarray]:
    shape = tuple(1 if i == axis else n for i, n in enumerate(matrix.shape))
    return matrix.values, np.full(shape, 1 / matrix.multiplier, np.float32)


def _rounded(matrix: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    scales = np.abs(matrix).max(axis, keepdims=True, initial=0) / MOST
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(scales > 0, np.rint(matrix / scales), 0)
    return np.clip(np.nan_to_num(values), -MOST, MOST).astype(np.int8), scales
