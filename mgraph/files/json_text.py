"""JSON from untrusted sources: its size in memory is bounded before it is parsed."""

from __future__ import annotations

import json
from typing import Any

MAX_MARKS = 1 << 20
"""Braces, brackets and commas, each of which may become an object. An array of a model's takes about ten."""


def read_json(data: bytes, *, unique: bool = False) -> Any:
    """What the JSON text ``data``, in UTF-8, says.

    ``ValueError`` for what is not JSON or has more than ``MAX_MARKS``, also within texts, for objects nested
    too deeply and, if ``unique``, for a name that occurs twice in an object; else its last value counts.
    """
    marks = sum(map(data.count, (b"{", b"[", b",")))
    if marks > MAX_MARKS:
        raise ValueError(f"{marks} braces, brackets and commas (at most {MAX_MARKS} are read)")
    try:
        return json.loads(data.decode(), object_pairs_hook=_unique if unique else None)
    except RecursionError:
        raise ValueError("too many objects in one another") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is in it twice")
    return found
