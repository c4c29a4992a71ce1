"""The numbers that the task covers."""

from __future__ import annotations

LIMIT = 1_000_000
"""The numbers are 0 <= n < LIMIT."""


def check(number: int) -> int:
    """Return ``number`` if the task covers it.

    Raises TypeError for anything but an int and ValueError for an int outside 0 to 999,999.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"expected a whole number (int), got {number!r}")
    if not 0 <= number < LIMIT:
        raise ValueError(f"expected a number from 0 to {LIMIT - 1}, got {number}")
    return number
