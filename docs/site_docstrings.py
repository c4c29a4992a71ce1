"""Docstrings as the reference shows them: ``Shape: ...`` and ``name: what it is`` as items of lists.

An extension of griffe, which reads the code for mkdocstrings (``mkdocs.yml``).
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ENTRY = re.compile(r"^((?:[A-Z][a-z]+|[a-z_]\w*(?:, [a-z_]\w*)*)): (?=\S)")


class Entries(griffe.Extension):
    """Makes the entries of every docstring items of a list."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = listed(obj.docstring.value)


def listed(text: str) -> str:
    """The text with each entry as an item; first paragraphs and indented lines stay."""
    first, blank, rest = text.partition("\n\n")
    lines: list[str] = []
    in_list = False
    for line in rest.split("\n"):
        entry = _ENTRY.match(line)
        if entry and not in_list:
            lines.append("")
        lines.append(f"- **{entry[1]}**: {line[entry.end() :]}" if entry else line)
        in_list = bool(entry) or (in_list and bool(line))
    return first + blank + "\n".join(lines)
