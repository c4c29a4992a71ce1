"""Choice by the value of one of Marian's options."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import TypeVar

from mgraph.errors import MGraphError

T = TypeVar("T")


class UnsupportedOptionError(MGraphError, ValueError):
    """One of Marian's options has a value that is unknown or not supported yet."""


def choose(option: str, value: str, table: Mapping[str, T], known: Collection[str] = ()) -> T:
    """``table[value]`` for the ``value`` of Marian's ``option`` (``"dec-cell"``).

    ``known`` lists further values that Marian has. ``UnsupportedOptionError``, which lists the supported
    values, for any other.
    """
    if value in table:
        return table[value]
    problem = "is not supported yet" if value in known else "is unknown"
    close = difflib.get_close_matches(value, table, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise UnsupportedOptionError(
        f"{option}: {value!r} {problem}; there is {', '.join(map(repr, table))}{hint}"
    )
