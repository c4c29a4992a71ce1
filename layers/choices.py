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

    ``absent`` maps further values that Marian knows to the reasons why they are refused.
    ``UnsupportedOptionError``, which gives that reason or lists the supported values, for any value that is
    not in ``table``.
    """
    there = ", ".join(map(repr, table))
    if not isinstance(value, str):
        raise UnsupportedOptionError(f"{option}: expected one of {there}, got {value!r}")
    if value in table:
        return table[value]
    if absent and value in absent:
        raise UnsupportedOptionError(f"{option}: {value!r} is not supported: {absent[value]}")
    raise UnsupportedOptionError(
        f"{option}: {value!r} is unknown; expected {there}{meant(value, table, repr)}"
    )
