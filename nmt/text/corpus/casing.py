"""Some lines in capitals, so that a model learns to translate such text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nmt.text.lines import as_bytes
from nmt.text.vocabs.base import Vocab, as_text
from nmt.text.vocabs.sentence_piece import SegmentedVocab, SentencePieceVocab

_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_BEFORE_WORDS = " \"'-"
_SMALL_WORDS = frozenset(
    "a after against and any as at be because between by during for from his in is its last not of off on "
    "than the their this to was were which will with".split()
)


class Casing:
    """Changes the case of every n-th line, counted from 0 in the files.

    all_caps_every: n for capitals, in all streams; 0 for never.
    title_every: n for English title case, in the first source, from the second line on; 0 for never.

    As in Marian, text is changed only where a SentencePiece model splits it: other vocabularies could not
    know the words. Source: ``--all-caps-every``, ``--english-title-case-every``. Every letter that Unicode
    gives a single capital gets it; Marian's own list lacks some.
    """

    def __init__(self, vocabs: Sequence[Vocab], all_caps_every: int = 0, title_every: int = 0) -> None:
        self._splits = [isinstance(vocab, SentencePieceVocab | SegmentedVocab) for vocab in vocabs]
        self._caps, self._title = all_caps_every, title_every

    def alter(self, number: int, lines: list[str | bytes]) -> bool:
        """Change the lines of row ``number`` in place if it is their turn; whether it was."""
        if self._caps and number % self._caps == 0:
            for stream, line in enumerate(lines):
                if self._splits[stream]:
                    lines[stream] = as_bytes(in_capitals(as_text(line)))
            return True
        if self._title and number % self._title == 1:
            if self._splits[0]:
                lines[0] = as_bytes(in_title_case(as_text(lines[0])))
            return True
        return False


def in_capitals(text: str) -> str:
    """``text`` with a capital for each letter that has one."""
    capitals = text.upper()
    if len(capitals) == len(text):
        return capitals
    return "".join(upper if len(upper := letter.upper()) == 1 else letter for letter in text)


def in_title_case(text: str) -> str:
    """``text`` with a capital at each English word, but for small ones (``of``, ``the``)."""

    def capital(match: re.Match[str]) -> str:
        word, start = match[0], match.start()
        if word in _SMALL_WORDS or (start and text[start - 1] not in _BEFORE_WORDS):
            return word
        return word[0].upper() + word[1:]

    return _WORD.sub(capital, text)
