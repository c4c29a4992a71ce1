"""Reads and writes options as YAML, in the layout and quoting of Marian's YAML library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from nmt.text.vocabs.yaml_words import yaml_word

# A configuration has a few thousand characters; PyYAML needs half a minute for a million.
MAX_CHARACTERS = 1 << 16
MAX_DEPTH = 16
_STAND_INS = {0xDC00 + byte: 0x10FF00 + byte for byte in range(0x80, 0x100)}
"""PyYAML refuses surrogate escapes, so private characters stand in for them while it reads."""
_ESCAPES = {stand_in: escape for escape, stand_in in _STAND_INS.items()}


def read(text: str) -> Any:
    """Parse the only document in ``text``: maps and lists of unconverted words; None if it is empty. Bytes
    that are not UTF-8, such as those of a path, may be surrogate escapes.

    With aliases expanded there may be at most ``MAX_CHARACTERS``, and ``MAX_DEPTH`` nested maps and lists.
    ``yaml.YAMLError`` for more, and for invalid YAML.
    """
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"{len(text)} characters (at most {MAX_CHARACTERS} are read)")
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except (ValueError, OverflowError) as error:  # of numbers in directives and escapes
        raise yaml.YAMLError(f"{str(error)[:80]}") from None
    finally:
        loader.dispose()


def read_file(path: str) -> Any:
    """``read`` the text of a file, in UTF-8 but for escaped bytes; ``OSError`` if it cannot be read."""
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:
        return read(stream.read(MAX_CHARACTERS + 1))


class _Loader(yaml.BaseLoader):
    """Limits depth, and size with aliases expanded."""

    def __init__(self, text: str) -> None:
        readable = text.translate(_STAND_INS)
        super().__init__(readable)
        self._escapes = _ESCAPES if readable != text else {}
        self._depth = self._size = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth > MAX_DEPTH:
            raise yaml.YAMLError(f"more than {MAX_DEPTH} nested maps and lists")
        is_alias, before = self.check_event(yaml.AliasEvent), self._size
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias:
            if id(node) not in self._sizes:
                raise yaml.YAMLError("an alias within its own anchor")
            self._size += self._sizes[id(node)]
        else:
            self._size += 1 + len(node.value) if isinstance(node, yaml.ScalarNode) else 1
            self._sizes[id(node)] = self._size - before
        if self._size > 2 * MAX_CHARACTERS:
            raise yaml.YAMLError(f"with its aliases it is longer than {MAX_CHARACTERS} characters")
        return node

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        word: str = super().construct_scalar(node)
        return word.translate(self._escapes)


def entry(name: str, value: Any) -> str:
    """``name: value``; lists have a line per element, maps in lists are sorted by name."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return f"{name}: {scalar(value)}"
    return "\n  ".join([f"{name}:", *(f"- {_element(element)}" for element in value)] + ["[]"] * (not value))


def scalar(value: bool | int | float | str | None) -> str:
    """A value that is not a list. Numbers have the fewest digits, at least seven, that preserve the value."""
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
    """A list element: maps on several lines, lists on one."""
    if isinstance(value, Mapping):
        return "\n".join(entry(name, value[name]) for name in sorted(value)).replace("\n", "\n    ")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_in_line, value))}]"
    return scalar(value)


def _in_line(value: Any) -> str:
    """An element of a one-line list, where more characters need quotes."""
    text = _element(value)
    quoted = isinstance(value, str) and not text.startswith('"') and any(sign in text for sign in ",?[]{}")
    return json.dumps(value, ensure_ascii=False) if quoted else text
