"""Which numbers an operator may take as a field in place of several."""

from __future__ import annotations

import math

import jax.numpy as jnp

from ...node import Node


def is_normal(x: Node, number: float) -> bool:
    """Whether an operator on ``x`` can hold a number: zero, or neither overflowing nor underflowing."""
    if not x.value_type.is_float:
        return abs(number) < 2**63
    limits = jnp.finfo(x.value_type.dtype)
    return number == 0 or float(limits.tiny) <= abs(number) <= float(limits.max)


def product(x: Node, *factors: float) -> float | None:
    """The product of factors of ``x``; ``None`` where it underflows, overflows or is not a number."""
    total = math.prod(factors)
    safe = is_normal(x, total) and all(is_normal(x, factor) for factor in factors)
    return total if safe and (total != 0 or 0 in factors) else None


def sum_of(x: Node, a: float, b: float) -> float | None:
    """The sum of numbers added to ``x``; ``None`` where it would undo a rounding that was meant.

    ``(x + 2**23) - 2**23`` rounds a float32 to a whole number.
    """
    if x.value_type.is_float and a * b < 0:
        bound = 1 / math.sqrt(float(jnp.finfo(x.value_type.dtype).eps))
        if max(abs(a), abs(b)) > bound:
            return None
    return a + b if is_normal(x, a + b) and is_normal(x, a) and is_normal(x, b) else None
