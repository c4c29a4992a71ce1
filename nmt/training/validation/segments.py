"""What BLEU and chrF compare: words, characters or pieces of a translation."""

from __future__ import annotations

import re
from bisect import bisect_right

_RULES = tuple(
    (re.compile(pattern, re.ASCII), replacement)
    for pattern, replacement in (
        (r"<skipped>", ""),
        (r"&quot;", '"'),
        (r"&amp;", "&"),
        (r"&lt;", "<"),
        (r"&gt;", ">"),
    )
)
_WORD_RULES = tuple(
    (re.compile(pattern, re.ASCII), replacement)
    for pattern, replacement in (
        (r"([{-~\[-` -&(-+:-@/])", r" \1 "),
        (r"([^0-9])([.,])", r"\1 \2 "),
        (r"([.,])([^0-9])", r" \1 \2"),
        (r"([0-9])(-)", r"\1 \2 "),
        (r"\s+", " "),
    )
)
# First and last characters, in rising order. Source: Marian, isContinuousScript.
_CONTINUOUS = (
    (0x0E00, 0x0E7F),  # Thai
    (0x2E80, 0x2E99),  # Han, and so on
    (0x2E9B, 0x2EF3),
    (0x2F00, 0x2FD5),
    (0x3005, 0x3005),
    (0x3007, 0x3007),
    (0x3021, 0x3029),
    (0x3038, 0x303B),
    (0x3040, 0x30FF),  # kana
    (0x3200, 0x32FF),
    (0x3400, 0x4DB5),
    (0x4E00, 0x9FEF),
    (0xF900, 0xFA6D),
    (0xFA70, 0xFAD9),
    (0x1B000, 0x1B0FF),  # kana
    (0x1B130, 0x1B16F),
    (0x20000, 0x2A6D6),
    (0x2A700, 0x2B734),
    (0x2B740, 0x2B81D),
    (0x2B820, 0x2CEA1),
    (0x2CEB0, 0x2EBE0),
    (0x2F800, 0x2FA1D),
)
_FIRST = tuple(first for first, _ in _CONTINUOUS)


def tokenized(text: str) -> str:
    """Raw text with a space around each word and mark, by the rules of mteval-v13a, which are sacreBLEU's."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = f" {text} "
    for pattern, replacement in _WORD_RULES:
        text = pattern.sub(replacement, text)
    return text.strip(" ")


def separated(text: str) -> str:
    """``text`` with a space around each character of a script without spaces: Han, kana, Thai."""
    return "".join(f" {character} " if is_continuous(character) else character for character in text)


def is_continuous(character: str) -> bool:
    """Whether a character is of a script that puts no spaces between words."""
    code = ord(character)
    place = bisect_right(_FIRST, code) - 1
    return place >= 0 and code <= _CONTINUOUS[place][1]


def words(text: str) -> tuple[str, ...]:
    """What stands between spaces, U+0020 and no others."""
    return tuple(word for word in text.split(" ") if word)


def characters(text: str) -> str:
    """``text`` without spaces, U+0020 and no others."""
    return text.replace(" ", "")
