"""Files of ``word: id``, in YAML or JSON, as Marian reads and writes them.

A general YAML reader does not fit: it converts words like ``no``, ``null``, ``1.5`` and 2001-01-01, rejects
invalid UTF-8 and breaks lines at U+0085. Here a word is always text of any bytes, and only a line feed ends a
line. All that Marian (yaml-cpp) reads is read the same way: plain, 'single' and "double" quoted words, with
escapes; block lines, JSON or flow maps; ``? word`` with ``: id`` below; comments; ``---`` and ``...``. Words
without required quotes (``@: 7``, ``*: 8``), which Marian rejects, are read where they are unambiguous;
anything else is an error with its line number.

Words are written byte for byte as by Marian's yaml-cpp: plain if YAML reads them back as text, else in double
quotes. Invalid UTF-8 survives in a plain word only: in quotes each bad sequence becomes U+FFFD, and U+007F
two invalid bytes, as in Marian.
"""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Iterable, Iterator

from .base import VocabError

logger = logging.getLogger(__name__)

YAML_ENDINGS = (".yml", ".yaml", ".json")
MAX_ID = 0xFFFFFFFF
MAX_LINE = 1 << 16

# The form of almost all lines in real files; any other start may be more than a plain word.
_PLAIN_ENTRY = re.compile(r"([^\"'#&*!|>%@`\[\]{},?: \t-][^ \t]*): (0|[1-9][0-9]{0,8})")
_QUOTED = r'"((?:[^"\\\n]++|\\[^\n])*+)"|\'((?:[^\'\n]++|\'\')*+)\''
_ENTRY = re.compile(rf"(?:(?:{_QUOTED})[ \t]*|(.+?)):(?:[ \t]+(.*))?")
_QUOTED_KEY = re.compile(rf"(?:{_QUOTED})[ \t]*(?:#.*)?")
_COMMENT = re.compile(r"[ \t]#")
_SKIP = r"(?:[ \t\r\n]|(?<=[ \t\r\n])#[^\n]*+)*+"
_FLOW_SKIP = re.compile(_SKIP)
_FLOW_ENTRY = re.compile(
    rf"(?:(?:{_QUOTED})[ \t]*:|([^ \t\r\n\"'#&*!|>%@`,\[\]{{}}][^,\[\]{{}}\n]*?):(?=[ \t\r\n]))"
    rf"{_SKIP}([^ \t\r\n,{{}}]+){_SKIP}([,}}])"
)
_ID = re.compile(
    r"([\"']?)\+?(0[xX][0-9a-fA-F]{1,8}|0[0-7]{0,11}|[1-9][0-9]{0,9})[ \t]*\1[ \t]*(?:(?<=[ \t])#.*)?"
)
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|x([0-9a-fA-F]{2})"
    r"|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))",
    re.DOTALL,
)
# \N and \_ are one raw byte to Marian (as surrogate escapes here), not U+0085 and U+00A0.
_SIMPLE_ESCAPES = dict(
    zip("0abt\tnvfre \"'\\/N_LP", "\0\a\b\t\t\n\v\f\r\x1b \"'\\/\udc85\udca0\u2028\u2029", strict=True)
)

_NULLS = (b"", b"~", b"null", b"Null", b"NULL")
_PLAIN_START = re.compile(rb"[^ \t\n,\[\]{}#&*!|>'\"%@`?:-]|[?:-][^ \t\n]", re.DOTALL)
_NOT_PLAIN = re.compile(
    rb":(?:[ \t\n]|\Z)|[ \t\n]#| \Z|[\x00-\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x84\x86-\x9f]|\xef\xbb\xbf", re.DOTALL
)
_ESCAPES = {ord(c): f"\\{e}".encode() for c, e in zip('"\\\n\t\r\b', '"\\ntrb', strict=True)}
_REPLACEMENT = 0xFFFD
_TRAILING_BYTES = {0xC: 1, 0xD: 1, 0xE: 2, 0xF: 3}  # by the high half of the first byte
# What the next line of a block map may be.
_AWAITED_ENTRY, _AWAITED_KEY = "`word: id`", "a word, after `?`"
_AWAITED_COLON, _AWAITED_VALUE = "`: id`, after `? word`", "an id"


def parse_word_ids(data: bytes, path: str) -> dict[str, int]:
    """The words of a YAML or JSON vocabulary and their ids, in file order.

    If a word occurs twice, the first id counts, as in Marian. ``path`` is for messages. Raises ``VocabError``
    with path and line if the file is not a map of words to ids.
    """
    text = _decoded(data)
    start = _flow_start(text)
    return _flow(text, start, path) if start is not None else _Block(path).read(text)


def _decoded(data: bytes) -> str:
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            errors = "surrogateescape" if encoding == "utf-8" else "replace"
            return data[len(mark) :].decode(encoding, errors)
    return data.decode("utf-8", "surrogateescape")


def _flow_start(text: str) -> int | None:
    """The start of a map in braces (JSON); None for block lines."""
    at = 0
    for line in text.split("\n"):
        bare = line.strip(" \t\r")
        if bare.startswith("{"):
            return at + line.index("{")
        if bare and bare[0] not in "#%" and not _is_marker(line, "---"):
            return None
        at += len(line) + 1
    return None


def _flow(text: str, start: int, path: str) -> dict[str, int]:
    words: dict[str, int] = {}
    at = _skip(text, start + 1)
    try:
        while not text.startswith("}", at):
            match = _FLOW_ENTRY.match(text, at)
            if match is None:
                raise _UnreadableEntry(
                    f'expected "word": id and then a comma or a closing brace, got {text[at : at + 40]!r}'
                )
            double, single, plain, value, end = match.groups()
            words.setdefault(_word(double, single, plain), _id(value))
            at = _skip(text, match.end()) if end == "," else match.end() - 1
    except _UnreadableEntry as error:
        raise VocabError(f"{path}:{_line_number(text, at)}: {error}") from None
    after = _skip(text, at + 1)
    if after < len(text) and not text.startswith("...", after):
        logger.warning(
            "%s:%d: what follows the closing brace is not read, as in Marian", path, _line_number(text, after)
        )
    return words


def _skip(text: str, at: int) -> int:
    """The position after white space and comments."""
    match = _FLOW_SKIP.match(text, at)
    return match.end() if match else at


def _line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


class _UnreadableEntry(ValueError):
    """What is wrong with an entry; the caller adds the line number."""


class _Block:
    """Reads ``word: id`` lines, or entries over two lines (``? word``, ``: id``)."""

    def __init__(self, path: str):
        self._path = path
        self._words: dict[str, int] = {}
        self._awaited = _AWAITED_ENTRY
        self._key = ""

    def read(self, text: str) -> dict[str, int]:
        words, lines, number = self._words, text.split("\n"), 0
        try:
            for number, line in enumerate(lines, 1):
                line = line.removesuffix("\r")
                plain = _PLAIN_ENTRY.fullmatch(line)
                if plain is not None and self._awaited == _AWAITED_ENTRY:
                    words.setdefault(plain[1], int(plain[2]))
                elif not self._line(line):
                    if line[:3] != "..." or any(map(str.strip, lines[number:])):
                        logger.warning(
                            "%s:%d: %r ends the vocabulary, as in Marian; what follows is not read",
                            self._path,
                            number,
                            line[:40],
                        )
                    break
            if self._awaited != _AWAITED_ENTRY:
                raise self._unexpected("the end of the file")
        except _UnreadableEntry as error:
            raise VocabError(f"{self._path}:{number}: {error}") from None
        return words

    def _line(self, line: str) -> bool:
        """Read one line; False if it ends the document before the file's end."""
        bare = line.strip(" \t")
        if not bare or bare[0] == "#":
            return True
        if len(line) > MAX_LINE:
            raise _UnreadableEntry(f"a line of {len(line)} characters (at most {MAX_LINE} are read)")
        if line[0] == "%" or _is_marker(line, "---") or _is_marker(line, "..."):
            return self._marker(line)
        if self._awaited == _AWAITED_ENTRY:
            self._entry(line, bare)
        elif self._awaited == _AWAITED_KEY:
            self._complex_key(bare)
        elif self._awaited == _AWAITED_COLON:
            if bare[0] != ":" or bare[1:2] not in ("", " ", "\t"):
                raise self._unexpected(bare)
            self._value(bare[1:].lstrip(" \t"))
        else:
            if line[0] not in " \t":
                raise self._unexpected(bare)
            self._value(bare)
        return True

    def _marker(self, line: str) -> bool:
        """Read a directive (``%``) or the start or end of a document; False if it ends the first document,
        the only one that Marian reads."""
        if self._awaited != _AWAITED_ENTRY:
            raise self._unexpected(line)
        if self._words or line.startswith("..."):
            return False
        if line[0] == "-" and line[3:].strip(" \t")[:1] not in ("", "#"):
            raise self._unexpected(line)
        return True

    def _entry(self, line: str, bare: str) -> None:
        if line[0] == "\t" or (bare[0] == "-" and bare[1:2] in ("", " ", "\t")):
            raise self._unexpected(line)
        if bare[0] == "?" and bare[1:2] in ("", " ", "\t"):
            self._awaited = _AWAITED_KEY
            rest = bare[1:].lstrip(" \t")
            if rest and rest[0] != "#":
                self._complex_key(rest)
            return
        match = _ENTRY.fullmatch(line.lstrip(" "))
        if match is None:
            raise self._unexpected(bare)
        double, single, plain, value = match.groups()
        self._key = _word(double, single, plain)
        self._value(value or "")

    def _complex_key(self, text: str) -> None:
        match = _QUOTED_KEY.fullmatch(text)
        if match is not None:
            self._key = _word(match[1], match[2], None)
        elif text[-1] == ":" or text[0] in "|>[{\"'" or text[:2] == "- ":
            raise self._unexpected(text)
        else:
            self._key = _word(None, None, _COMMENT.split(text, maxsplit=1)[0])
        self._awaited = _AWAITED_COLON

    def _value(self, text: str) -> None:
        if not text or text[0] == "#":
            self._awaited = _AWAITED_VALUE
            return
        self._words.setdefault(self._key, _id(text))
        self._awaited = _AWAITED_ENTRY

    def _unexpected(self, line: str) -> _UnreadableEntry:
        return _UnreadableEntry(f"expected {self._awaited}, got {line[:80]!r}")


def _is_marker(line: str, mark: str) -> bool:
    return line.startswith(mark) and line[3:4] in ("", " ", "\t", "\r")


def _word(double: str | None, single: str | None, plain: str | None) -> str:
    if double is not None:
        return _unescaped(double)
    if single is not None:
        return single.replace("''", "'")
    word = (plain or "").rstrip(" ")
    spaced = " " in word or "\t" in word
    if (spaced and (word[0] in "&*!" or _COMMENT.search(word))) or word.startswith("!<"):
        raise _UnreadableEntry(
            f"an anchor, tag, alias or comment before the colon, in {word[:80]!r}; put the word in quotes, "
            "or remove what is not part of it"
        )
    if ": " in word:
        raise _UnreadableEntry(f"two colons in {word[:80]!r}; put the word in quotes")
    return word


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        high, low, *codes, simple = match.groups()
        if simple is not None:
            if simple not in _SIMPLE_ESCAPES:
                raise _UnreadableEntry(f'\\{simple} is not an escape, in "{text[:80]}"')
            return _SIMPLE_ESCAPES[simple]
        if high is not None:
            return chr(0x10000 + (int(high, 16) - 0xD800 << 10) + int(low, 16) - 0xDC00)
        code = int(next(c for c in codes if c is not None), 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise _UnreadableEntry(f'{match[0]} is not a Unicode character, in "{text[:80]}"')
        return chr(code)

    return _ESCAPE.sub(character, text) if "\\" in text else text


def _id(text: str) -> int:
    """An id as C++ reads one: decimal, hexadecimal after 0x, octal after 0, in quotes or not."""
    match = _ID.fullmatch(text)
    if match is None:
        raise _UnreadableEntry(f"expected an id (a number from 0 to {MAX_ID}), got {text[:80]!r}")
    digits = match[2].lower()
    value = int(digits, 16 if digits.startswith("0x") else 8 if digits[0] == "0" else 10)
    if value > MAX_ID:
        raise _UnreadableEntry(f"id {value} is over {MAX_ID}")
    return value


def word_ids_yaml(words: Iterable[bytes]) -> bytes:
    """``word: id`` for each word, one per line, ids from 0, without a final line feed."""
    return b"\n".join(b"%s: %d" % (yaml_word(word), number) for number, word in enumerate(words))


def yaml_word(word: bytes) -> bytes:
    """One word as a key of a YAML map, quoted if it must be."""
    if word not in _NULLS and _PLAIN_START.match(word) and not _NOT_PLAIN.search(word):
        return word
    return b'"%s"' % b"".join(map(_quoted, _code_points(word)))


def _quoted(code: int) -> bytes:
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code == 0x7F:  # yaml-cpp encodes it as two bytes
        return b"\xc1\xbf"
    if code < 0x20 or 0x80 <= code <= 0xA0:
        return b"\\x%02x" % code
    return b"\\ufeff" if code == 0xFEFF else chr(code).encode()


def _code_points(word: bytes) -> Iterator[int]:
    """The characters of ``word``; U+FFFD for bad bytes, surrogates and noncharacters."""
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
