"""Words and their ids as YAML, byte for byte as Marian writes them with the yaml-cpp that it ships.

A word is written as it stands where YAML reads it back as text, else in double quotes. What is not
UTF-8 can stand in a plain word only: in quotes each bad sequence becomes U+FFFD, and U+007F two
bytes that are not UTF-8 (Marian's file has them, so has ours).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NULLS = (b"", b"~", b"null", b"Null", b"NULL")
_PLAIN_START = re.compile(rb"[^ \t\n,\[\]{}#&*!|>'\"%@`?:-]|[?:-][^ \t\n]", re.DOTALL)
_NOT_PLAIN = re.compile(
    rb":(?:[ \t\n]|\Z)|[ \t\n]#| \Z|[\x00-\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x84\x86-\x9f]|\xef\xbb\xbf",
    re.DOTALL,
)
_ESCAPES = {ord(c): f"\\{e}".encode() for c, e in zip('"\\\n\t\r\b', '"\\ntrb', strict=True)}
_REPLACEMENT = 0xFFFD
_TRAILING_BYTES = {0xC: 1, 0xD: 1, 0xE: 2, 0xF: 3}  # by the high half of the first byte


def word_ids_yaml(words: Iterable[bytes]) -> bytes:
    """``word: id`` for each word, one per line, the ids counted from 0; no end of line at the end."""
    return b"\n".join(b"%s: %d" % (yaml_word(word), number) for number, word in enumerate(words))


def yaml_word(word: bytes) -> bytes:
    """One word as a key of a YAML map, quoted if it must be."""
    if word not in _NULLS and _PLAIN_START.match(word) and not _NOT_PLAIN.search(word):
        return word
    return b'"%s"' % b"".join(map(_quoted, _code_points(word)))


def _quoted(code: int) -> bytes:
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code == 0x7F:  # yaml-cpp takes it for a character of two bytes
        return b"\xc1\xbf"
    if code < 0x20 or 0x80 <= code <= 0xA0:
        return b"\\x%02x" % code
    return b"\\ufeff" if code == 0xFEFF else chr(code).encode()


def _code_points(word: bytes) -> Iterator[int]:
    """The characters of ``word``; U+FFFD for those that are none: bad bytes, surrogates, noncharacters."""
    at = 0
    while at < len(word):
        first = word[at]
        at += 1
        if first < 0x80:
            yield first
            continue
        trailing = _TRAILING_BYTES.get(first >> 4)
        if trailing is None:
            yield _REPLACEMENT
            continue
        code = first & (0x3F >> trailing)
        for _ in range(trailing):
            if at == len(word) or word[at] & 0xC0 != 0x80:
                code = _REPLACEMENT
                break
            code = code << 6 | word[at] & 0x3F
            at += 1
        no_character = code > 0x10FFFF or 0xD800 <= code <= 0xDFFF or 0xFDD0 <= code <= 0xFDEF
        yield _REPLACEMENT if no_character or code & 0xFFFE == 0xFFFE else code
