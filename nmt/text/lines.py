"""Text as lines of bytes: N lines in, N lines out, whatever the bytes are.

A line ends at ``\\n`` and nowhere else; one ``\\r`` before it belongs to the end. Tab, no-break
space, U+2028, form feed and a byte-order mark are part of the words around them. A last line
counts whether or not it is ended (Marian drops an unended one).
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from mgraph.errors import ArgumentError
from mgraph.files.archive import expansion_limit
from mgraph.files.paths import path_text

MAX_LINE_BYTES = 1 << 24
"""Of a packed text."""
STANDARD_INPUT = ("stdin", "-")
STANDARD_OUTPUT = ("stdout", "-")


def without_end(line: bytes) -> bytes:
    """``line`` without its ``\\n``, and without one ``\\r`` before that."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def as_bytes(line: str | bytes) -> bytes:
    """UTF-8 of a line; surrogate escapes become the bytes they stand for. ArgumentError for no text."""
    if isinstance(line, bytes):
        return line
    if not isinstance(line, str):
        raise ArgumentError(f"a line is str or bytes, got {line!r:.80} ({type(line).__name__})")
    try:
        return line.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogatepass")


def is_utf8(line: bytes) -> bool:
    """True if ``line`` is valid UTF-8."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def read_lines(stream: Iterable[str | bytes]) -> Iterator[bytes]:
    """The lines of a binary stream or of any iterable of lines, as bytes without their ends.

    Each line is handed on as soon as it is read, so a pipe is answered line by line. ArgumentError for one
    line instead of several, whose characters would each be one.
    """
    if isinstance(stream, str | bytes) or not isinstance(stream, Iterable):
        raise ArgumentError(f"a text is a list, a file or another iterable of lines, got {stream!r:.80}")
    return (without_end(as_bytes(line)) for line in stream)


def tab_fields(line: bytes, number: int) -> list[bytes]:
    """The fields of a line with tabs between, with empty ones for those that it lacks of ``number``, as in
    Marian (``--tsv``). There may be more than ``number``."""
    fields = line.split(b"\t")
    return [*fields, *[b""] * (number - len(fields))]


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """A file to read bytes from; ``stdin`` or ``-`` is standard input, ``*.gz`` is unpacked."""
    path = path_text(path)
    if path in STANDARD_INPUT:
        yield sys.stdin.buffer
    elif path.endswith(".gz"):
        with _Unpacked(path, "rb") as stream:
            try:
                yield cast(BinaryIO, stream)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise OSError(f"{path} is damaged: {error}") from error
    else:
        with open(path, "rb") as stream:
            yield stream


class _Unpacked(gzip.GzipFile):
    """A packed file, of which a line has at most ``MAX_LINE_BYTES``: a small file may unpack to one endless
    line."""

    def readline(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise OSError(f"{self.name}: a line of more than {MAX_LINE_BYTES} bytes")
        return line


def read_whole(path: str, most: int | None = None) -> bytes:
    """The bytes of a file, of its first ``most`` if it has more.

    OSError if it cannot be read, or is packed and unpacks to more than ``expansion_limit`` of its size.
    """
    with open_input(path) as stream:
        if not isinstance(stream, _Unpacked):
            return stream.read(-1 if most is None else most)
        limit = expansion_limit(os.stat(path).st_size)
        data = stream.read(limit + 1)
        if len(data) > limit:
            raise OSError(f"{path}: unpacks to more than {limit} bytes, far more than such files do")
        return data[:most]


@contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """A file to write bytes to; ``stdout`` or ``-`` is standard output, ``*.gz`` is packed."""
    if path in STANDARD_OUTPUT:
        yield sys.stdout.buffer
    elif path.endswith(".gz"):
        with gzip.open(path, "wb") as stream:
            yield cast(BinaryIO, stream)
    else:
        with open(path, "wb") as stream:
            yield stream


def silence_standard_output() -> None:
    """Let what is still buffered for a closed pipe go nowhere, so that leaving raises nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
