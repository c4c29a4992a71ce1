"""Plain numbers: which of two a reader takes in sooner, and which may replace values of a domain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...specs import is_real

PLAIN = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -2.0, 1.5, -0.5, 0.25)
PLAIN_INTEGERS = (0, 1, 2, 3)
"""The plainest real numbers, and the plainest integers, which all integer types have."""


def plain(value: Any, step: float) -> Any:
    """The nearest multiple of ``step``; for 0.1, without the digits that binary fractions add."""
    return np.round(np.round(np.asarray(value) / step) * step, 1)


def plainness(*arrays: np.ndarray) -> float:
    """A cost that is lower for plainer numbers: zero, then ones, small integers, halves, tenths, all others;
    a little higher where numbers of an array differ."""
    return float(sum(_costs(a).sum() + 0.1 * len(np.unique(a)) for a in arrays))


def _costs(array: np.ndarray) -> np.ndarray:
    numbers = np.asarray(array, np.float64)
    size = np.abs(numbers)
    costs = np.select(
        [size == 0, size == 1, (size == np.round(size)) & (size < 10), 2 * size == np.round(2 * size)],
        [0.0, 1.0, 1.0 + np.minimum(size, 10), 12.0 + np.minimum(size, 10)],
        np.where(np.isclose(numbers, plain(numbers, 0.1), rtol=0, atol=1e-12), 30.0, 60.0),
    )
    return costs + 0.5 * (numbers < 0)


def within(domains: Sequence[str], values: Sequence[np.ndarray]) -> bool:
    """Whether the values stay in their domains, as ``Case`` defines them, so that they bring no new failure:
    ties and kinks, logarithms of zero, indices out of range."""
    pairs = list(zip(domains, values, strict=True))
    distinct = [np.ravel(v) for d, v in pairs if d == "distinct"]
    return all(_is_within(d, v) for d, v in pairs) and (not distinct or _are_apart(np.concatenate(distinct)))


def _is_within(domain: str, value: np.ndarray) -> bool:
    if bound := re.fullmatch(r"index:(\d+)", domain):
        return bool(np.all((value >= 0) & (value < int(bound[1]))))
    if bound := re.fullmatch(r"offsets:(\d+)", domain):
        ends = value.size == 0 or (value.flat[0] == 0 and value.flat[-1] == int(bound[1]))
        return bool(ends and np.all(np.diff(value.astype(np.int64)) >= 0))
    if domain == "positive":
        return bool(np.all(value > 0))
    if domain == "unit":
        return bool(np.all((value > 0) & (value < 1)))
    if domain == "mask":
        return bool(np.all((value == 0) | (value == 1)))
    return is_real(value) or bool(np.all(value >= 0)) or domain == "int8"


def _are_apart(numbers: np.ndarray) -> bool:
    """Whether the numbers are odd multiples of 0.1, no two of them equal."""
    tenths = np.round(10 * numbers)
    odd = np.all(np.abs(10 * numbers - tenths) < 1e-9) and np.all(np.mod(tenths, 2) == 1)
    return bool(odd and len(np.unique(tenths)) == numbers.size)
