"""Names in messages: suggestions for misspelt names, long lists, articles and plurals."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence


def meant(name: str, known: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """``; did you mean softmax?`` for a misspelt name, or nothing if no known name is similar.

    shown: formats the suggestion.
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {shown(close[0])}?" if close else ""


def first_of(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: at most so many names, and how many are left."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def with_article(noun: str) -> str:
    """``a dot`` or ``an affine``."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def counted(number: int, noun: str) -> str:
    """``1 operator`` or ``2 operators``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
