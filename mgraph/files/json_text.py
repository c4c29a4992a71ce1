"""JSON from untrusted sources: its size in memory is bounded before parsing."""

from __future__ import annotations

import json
from typing import Any

MAX_MARKS = 1 << 20
"""Braces, brackets and commas, each of which may become an object. A model's array takes about ten."""


def read_json(data: bytes, *, unique: bool = False) -> Any:
    """The value of the JSON text ``data``, in UTF-8.

    ``ValueError`` if it is not JSON, has more than ``MAX_MARKS`` marks (those in strings included), nests
    objects too deeply or, with ``unique``, repeats a name in an object; without it the last value wins.
    """
    marks = sum(map(data.count, (b"{", b"[", b",")))
    if marks > MAX_MARKS:
        raise ValueError(f"{marks} braces, brackets and commas (at most {MAX_MARKS} are read)")
    try:
        return json.loads(data.decode(), object_pairs_hook=_unique if unique else None)
    except RecursionError:
        raise ValueError("objects are nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice")
    return found
