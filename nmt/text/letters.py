"""Capital and small letters, one for one as in Marian: ``ß``, which has no single capital, stays as it is."""

from __future__ import annotations

from collections.abc import Callable


def in_capitals(text: str) -> str:
    """``text`` with every letter capitalized that has a single capital."""
    return _by_letter(str.upper, text)


def in_small_letters(text: str) -> str:
    """``text`` in small letters, whatever their place in a word: ``Σ`` becomes ``σ`` also at its end."""
    return _by_letter(str.lower, text)


def _by_letter(change: Callable[[str], str], text: str) -> str:
    return "".join(new if len(new := change(letter)) == 1 else letter for letter in text)
