"""Choice by the value of one of Marian's options, with refusals that name what is not there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from mgraph.errors import MGraphError

T = TypeVar("T")


class UnsupportedOptionError(MGraphError, ValueError):
    """An option of Marian has a value that is unknown, or that is known and not supported yet."""


def choose(option: str, value: str, table: Mapping[str, T], known: Collection[str] = ()) -> T:
    """``table[value]``, where ``value`` is that of Marian's ``option`` (``"dec-cell"``).

    ``known`` lists values that Marian has and ``table`` has not. ``UnsupportedOptionError`` otherwise,
    which says what there is.
    """
    if value in table:
        return table[value]
    problem = "is not supported yet" if value in known else "is unknown"
    raise UnsupportedOptionError(f"{option}: {value!r} {problem}; there is {', '.join(map(repr, table))}")
