"""Arrays compared: how far two gradients are apart, and how far rounding alone moves them.

NumPy compares them, in float64: there are many shapes, each of which would have to be compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...specs import is_real

MOVED = 8
"""By how many units in the last place inputs are perturbed to see how far rounding moves a gradient."""
ROUNDING = 16
"""A gradient may be off by this many times that movement."""

Gradients = tuple[Any, ...]
Pull = Callable[[str, Any, Any, tuple[Any, ...]], Gradients]
"""The gradients of an operator by a rule set, from its adjoint, its value and those of its children."""


class Comparison(NamedTuple):
    """A gradient that was found, compared with the one that was expected."""

    adjoint: float
    """The largest magnitude in the adjoint of the operator's value."""
    value: float
    """The largest magnitude in the child's value."""
    size: float
    """The largest magnitude in the gradient that was expected."""
    difference: float
    """The largest difference; infinite where a number is not finite."""
    allowed: float
    """The largest difference that counts as agreement."""
    place: int
    """Where the largest difference is, counted through the flat array."""
    expected: float
    found: float
    factor: float
    """The factor that brings the expected gradient nearest to the one found; 1 where they agree."""
    rest: float
    """The largest difference that is left after multiplying by ``factor``."""

    @property
    def agrees(self) -> bool:
        """Whether the difference counts as agreement."""
        return self.difference <= self.allowed and self.difference < np.inf


class Distance(NamedTuple):
    """How far an array is from the one that was expected."""

    size: float
    """The largest magnitude in the expected one."""
    largest: float
    """The largest difference; infinite where a number is not finite."""
    relative: float
    """The norm of the difference, relative to that of the expected one."""


def comparisons(
    pull: Pull,
    rule_set: str,
    trained: tuple[bool, ...],
    adj: Any,
    value: Any,
    children: tuple[Any, ...],
    kind: str,
    tolerance: float,
) -> tuple[Gradients, tuple[Comparison | None, ...]]:
    """JAX's gradients of one operator, and for each child that has one, how the rule's compares.

    They agree if they differ by no more than a tolerance, relative to the largest element, plus what rounding
    can do in the element type ``kind``: ``ROUNDING`` times how far they move when their inputs move by a few
    units in the last place. How far the rule alone moves counts only up to those few units of the gradient or
    the adjoint: a rule that loses digits is not excused by that.
    """
    moved = [_moved(child) if flag else child for child, flag in zip(children, trained, strict=True)]
    given, nearby = (adj, value, children), (_moved(adj), value, tuple(moved))
    expected = pull("jax", *given)
    gradients = expected, pull(rule_set, *given), pull("jax", *nearby), pull(rule_set, *nearby)
    compared = tuple(
        _compare(kind, tolerance, adj, child, *each) if each[0] is not None else None
        for child, *each in zip(children, *gradients, strict=True)
    )
    return expected, compared


def _compare(
    kind: str,
    tolerance: float,
    adj: Any,
    child: Any,
    expected: Any,
    found: Any,
    expected_nearby: Any,
    found_nearby: Any,
) -> Comparison:
    """The comparison of two gradients by ``child``; a found ``None`` is zero."""
    right, wrong = vector(expected), vector(found, expected)
    apart = _apart(right, wrong)
    place, size, adjoint = int(np.argmax(apart)), largest(right), largest(vector(adj))
    own = _apart(wrong, vector(found_nearby, expected)).max()
    own = min(own, MOVED * np.finfo(kind).eps * max(size, adjoint))
    noise = max(own, _apart(right, vector(expected_nearby)).max())
    result = Comparison(
        adjoint,
        largest(vector(child)),
        size,
        float(apart[place]),
        float(tolerance * size + ROUNDING * noise),
        place,
        float(right[place]),
        float(wrong[place]),
        factor=1.0,
        rest=float(apart[place]),
    )
    if result.agrees:
        return result
    with np.errstate(all="ignore"):
        power = _product(right, right)
        factor = _product(right, wrong) / power if power > 0 else 0.0
        return result._replace(factor=factor, rest=largest(wrong - factor * right))


def distance(expected: Any, found: Any) -> Distance:
    """How far ``found`` is from ``expected``; they may differ in element type."""
    right, wrong = vector(expected), vector(found, expected)
    apart = _apart(right, wrong)
    norm, off = math.sqrt(_product(right, right)), math.sqrt(_product(apart, apart))
    return Distance(largest(right), float(apart.max()), off / norm if norm else off)


def vector(array: Any, like: Any = None) -> np.ndarray:
    """The floating point elements of an array or of the parts of a tuple, in float64. ``None`` gives as many
    zeros as ``like`` has elements; where there are no elements, the vector is one zero."""
    if array is None:
        return np.zeros_like(vector(like))
    parts = [
        np.asarray(part).reshape(-1).astype(np.float64, copy=False)
        for part in jax.tree.leaves(array)
        if is_real(part) and part.size
    ]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(1)


def largest(numbers: np.ndarray) -> float:
    """The largest magnitude; infinite where a number is not finite."""
    found = max(float(numbers.max()), -float(numbers.min()))
    return found if np.isfinite(found) else np.inf


def _product(a: np.ndarray, b: np.ndarray) -> float:
    """The scalar product, without a multithreaded library."""
    with np.errstate(all="ignore"):
        return float(np.einsum("i,i->", a, b))


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Absolute differences, element by element; infinite where a number is not finite."""
    with np.errstate(all="ignore"):
        apart = a - b
    np.abs(apart, out=apart)
    if not np.isfinite(apart.max()):
        apart[~(np.isfinite(a) & np.isfinite(b))] = np.inf
    return apart


@jax.jit
def _moved(value: Any) -> Any:
    """Floating point numbers moved by up to ``MOVED`` units in the last place, up or down.

    The move is a function of the number, so equal numbers stay equal: an operator that takes the largest of
    several numbers must not see a tie broken. Zeros stay zeros.
    """
    return jax.tree.map(lambda x: _shifted(x) if is_real(x) else x, value)


def _shifted(x: jax.Array) -> jax.Array:
    bits = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[x.dtype.itemsize]
    width = 8 * x.dtype.itemsize
    pattern = jax.lax.bitcast_convert_type(x, bits)
    mixed = (pattern ^ (pattern >> bits(width // 2))) * bits(0x9E3779B97F4A7C15 >> (64 - width) | 1)
    share = (mixed >> bits(width - 8)).astype(x.dtype) / 127.5 - 1
    return x * (1 + MOVED * jnp.finfo(x.dtype).eps * share).astype(x.dtype)
