"""Options as YAML, laid out and quoted as Marian's library does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.vocabs.yaml_words import yaml_word


def entry(name: str, value: Any) -> str:
    """``name: value``; a list has a line for each element, a map in a list its names in order."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return f"{name}: {scalar(value)}"
    return "\n  ".join([f"{name}:", *(f"- {_element(element)}" for element in value)] + ["[]"] * (not value))


def scalar(value: bool | int | float | str | None) -> str:
    """A value that is no list. Numbers have as few digits, from seven, as give the same number back."""
    if value is None:
        return "~"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        texts = (f"{value:.{digits}g}" for digits in range(7, 18))
        return next(text for text in texts if float(text) == value)
    if isinstance(value, int):
        return str(value)
    return yaml_word(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _element(value: Any) -> str:
    """What a list has: maps over several lines, other lists within one."""
    if isinstance(value, Mapping):
        return "\n".join(entry(name, value[name]) for name in sorted(value)).replace("\n", "\n    ")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_in_line, value))}]"
    return scalar(value)


def _in_line(value: Any) -> str:
    """An element of a list within a line, where more characters have a meaning."""
    text = _element(value)
    quoted = isinstance(value, str) and not text.startswith('"') and any(sign in text for sign in ",?[]{}")
    return json.dumps(value, ensure_ascii=False) if quoted else text
