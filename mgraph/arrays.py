"""Arrays and numbers from users: checked, or refused with a reason."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .errors import ArgumentError, GraphError, ShapeError
from .places import here
from .shape import Shape
from .types import Type

ADDRESSABLE = 1 << 47
"""The most bytes a process can address; above this numpy and XLA raise errors other than ``MemoryError``."""


def refuse_traced(what: str, value: Any) -> None:
    """``GraphError`` for a value that JAX is tracing, which a graph cannot keep."""
    if isinstance(value, jax.core.Tracer):
        raise GraphError(
            f"{what} takes an array, got a value that JAX is tracing (inside jit, grad or vmap); make it an "
            f"argument of the graph's function: graph.function(outputs, inputs).pure(params, inputs){here()}"
        )


def as_array(what: str, value: Any) -> np.ndarray:
    """A copy of ``value`` as an array; ``ShapeError`` if its rows differ in length, ``GraphError`` if JAX is
    tracing it, ``ArgumentError`` for a masked array and anything else that NumPy cannot convert."""
    refuse_traced(what, value)
    try:
        if not isinstance(value, np.ma.MaskedArray):  # whose mask would be lost
            return np.array(value)
    except ValueError:
        raise ShapeError(
            f"{what} takes an array, got {value!r}, whose parts differ in shape{here()}"
        ) from None
    except jax.errors.TracerArrayConversionError:
        refuse_traced(what, next(v for v in jax.tree.leaves(value) if isinstance(v, jax.core.Tracer)))
        raise
    except TypeError:  # e.g. for a random key
        pass
    raise ArgumentError(f"{what} takes an array, got {described(value)}{here()}")


def holds_numbers(array: np.ndarray) -> bool:
    """Whether an array has a type of real numbers, or of truth values."""
    # Types beyond numpy's own, such as bfloat16 and int4, have other kinds.
    return array.dtype.kind in "biuf" or any(
        jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer)
    )


def numbers(what: str, value: Any) -> np.ndarray:
    """``as_array``; ``ArgumentError`` also if the elements are no real numbers."""
    array = as_array(what, value)
    if not holds_numbers(array):
        raise ArgumentError(f"{what} takes numbers, got {described(array)}{here()}")
    return array


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array, or a list or tuple that may become one."""
    return isinstance(value, np.ndarray | jax.Array | list | tuple)


def is_series(value: Any) -> bool:
    """Whether ``value`` can be iterated over: a 0-d array cannot, although its class is ``Iterable``."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0


def described(value: Any) -> str:
    """A value as messages show it: an array by its shape, anything else in full with its type."""
    if isinstance(value, jax.core.Tracer):
        return f"a value of shape {value.shape} that JAX is tracing"
    if isinstance(value, np.ndarray | jax.Array):
        kind = "a masked array" if isinstance(value, np.ma.MaskedArray) else "an array"
        return f"{kind} of shape {value.shape} and type {value.dtype}"
    return f"{value!r} of type {type(value).__name__}"


def real(what: str, name: str, value: Any) -> float:
    """``value``, argument ``name`` of ``what``, as a float; ``ArgumentError`` for strings and non-numbers."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError, GraphError):
        raise ArgumentError(f"{what}: {name} must be a number, got {described(value)}{here()}") from None


def whole(what: str, name: str, value: Any) -> int:
    """``value``, argument ``name`` of ``what``, as an int; ``ArgumentError`` if it is not a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(
            f"{what}: {name} must be a whole number, got {described(value)}{here()}"
        ) from None


def text(what: str, value: Any) -> str:
    """``value`` if it is a string, else ``ArgumentError``, which calls it ``what``."""
    if not isinstance(value, str):
        raise ArgumentError(f"{what} must be a string, got {described(value)}{here()}")
    return value


def checked_seed(seed: Any) -> int:
    """``seed`` as an int; ``ArgumentError`` unless it is a whole number from 0 to 2**64 - 1."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise ArgumentError(f"expected a seed from 0 to 2**64 - 1, got {seed!r}")
    return int(seed)


def flag(what: str, name: str, value: Any) -> bool:
    """``value``, argument ``name`` of ``what``, as a bool; ``ArgumentError`` unless it is a bool, 0 or 1, as
    any other number may have been meant for the next argument."""
    if isinstance(value, bool | np.bool_ | int | np.integer) and value in (0, 1):
        return bool(value)
    raise ArgumentError(f"{what}: {name} must be true or false, got {described(value)}{here()}")


@contextmanager
def allocating(what: str, shape: Shape, type_: Type) -> Iterator[None]:
    """``ShapeError`` if an array of this shape, allocated in the ``with`` block, does not fit into memory."""
    size = math.prod(shape) * type_.dtype.itemsize
    try:
        if size >= ADDRESSABLE:
            raise MemoryError
        yield
    except MemoryError:
        raise ShapeError(
            f"{what}: {type_} of shape {shape} takes {size / (1 << 30):,.0f} GiB, more than is available"
            f"{here()}"
        ) from None
