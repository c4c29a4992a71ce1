"""JSON from untrusted sources: its size in memory is bounded before parsing."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_MARKS = 1 << 20
"""Braces, brackets and commas, each of which may become an object. A model's array takes about ten."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(data: bytes, *, unique: bool = False) -> Any:
    """The value of the JSON text ``data``, in UTF-8.

    ``ValueError`` if it is not JSON, has more than ``MAX_MARKS`` marks (those in strings included), nests
    objects too deeply, has half a surrogate pair that stands for no byte (PEP 383) or, with ``unique``,
    repeats a name in an object; without it the last value wins.
    """
    marks = sum(map(data.count, (b"{", b"[", b",")))
    if marks > MAX_MARKS:
        raise ValueError(f"{marks} braces, brackets and commas (at most {MAX_MARKS} are read)")
    try:
        found = json.loads(data.decode(), object_pairs_hook=_unique if unique else None)
        if _SURROGATE.search(data):  # only an escape can be half a pair
            json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogateescape")
        return found
    except RecursionError:
        raise ValueError("objects are nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text with half a surrogate pair") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice")
    return found
