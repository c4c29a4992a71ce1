"""Names in messages: suggestions for misspelt names, articles and plurals."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


def meant(name: str, known: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """``; did you mean softmax?`` for a misspelt name, or nothing if no known name is similar.

    shown: formats the suggestion.
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {shown(close[0])}?" if close else ""


def with_article(noun: str) -> str:
    """``a dot`` or ``an affine``."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def counted(number: int, noun: str) -> str:
    """``1 operator`` or ``2 operators``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
