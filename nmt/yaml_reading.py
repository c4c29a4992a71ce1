"""YAML whose scalars are words, as they stand there; what they mean is for the reader to say."""

from __future__ import annotations

from typing import IO, Any

import yaml


def words_of(text: str | IO[str]) -> Any:
    """Maps, lists and words that a text holds. ``yaml.YAMLError`` if it is no YAML, or has too many lists or
    maps in one another to be read."""
    try:
        return yaml.load(text, yaml.BaseLoader)
    except RecursionError:
        raise yaml.YAMLError("too many lists or maps in one another") from None
