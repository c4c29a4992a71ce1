"""Choice by the value of one of Marian's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from mgraph.errors import MGraphError
from mgraph.names import meant

T = TypeVar("T")


class UnsupportedOptionError(MGraphError, ValueError):
    """One of Marian's options has a value that is unknown or not supported."""


def choose(option: str, value: str, table: Mapping[str, T], absent: Mapping[str, str] | None = None) -> T:
    """``table[value]`` for the ``value`` of Marian's ``option`` (``"dec-cell"``).

    ``absent`` has further values of Marian's, each with the reason why it is refused.
    ``UnsupportedOptionError``, which lists the supported values, for any other.
    """
    there = ", ".join(map(repr, table))
    if not isinstance(value, str):
        raise UnsupportedOptionError(f"{option}: expected one of {there}, got {value!r}")
    if value in table:
        return table[value]
    if absent and value in absent:
        raise UnsupportedOptionError(f"{option}: {value!r} is not supported: {absent[value]}")
    raise UnsupportedOptionError(
        f"{option}: {value!r} is unknown; there is {there}{meant(value, table, repr)}"
    )
