"""File names as given by a caller, and what kind of file exists there."""

from __future__ import annotations

import os

from ..errors import ArgumentError
from ..names import with_article


def path_text(path: str | os.PathLike[str]) -> str:
    """The path as a string. ``ArgumentError`` for anything but a path, and for a NUL character or half a
    surrogate pair, which no operating system accepts."""
    try:
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError
    except TypeError:
        raise ArgumentError(f"expected the path of a file, got {with_article(type(path).__name__)}") from None
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        raise ArgumentError(f"expected text without half a surrogate pair, got {text!r}") from None
    if b"\0" in encoded:
        raise ArgumentError(f"expected text without a NUL character, got {text!r}")
    return text


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` exists and is neither a file nor a folder, but a pipe or a device."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
