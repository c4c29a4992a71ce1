"""Text as lines of bytes: N lines in, N lines out, whatever the bytes are.

Only ``\\n`` or ``\\r\\n`` ends a line. Tab, no-break space, U+2028, form feed and a byte-order mark are part
of the words around them. A last line without a line end is read too (Marian drops it).
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from mgraph.errors import ArgumentError
from mgraph.files.archive import expansion_limit
from mgraph.files.paths import is_special, path_text

MAX_LINE_BYTES = 1 << 24
"""The longest line that is read from compressed text."""
STANDARD_INPUT = ("stdin", "-")
STANDARD_OUTPUT = ("stdout", "-")


def without_end(line: bytes) -> bytes:
    """``line`` without its ``\\n``, and without one ``\\r`` before that."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def as_bytes(line: str | bytes) -> bytes:
    """A line as UTF-8; surrogate escapes become their bytes. ArgumentError if it is not text."""
    if isinstance(line, bytes):
        return line
    if not isinstance(line, str):
        raise ArgumentError(f"a line must be str or bytes, got {line!r:.80} ({type(line).__name__})")
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


def require_items(expected: str, value: object) -> None:
    """ArgumentError, saying what was ``expected``, if ``value`` is not iterable, or is a single ``str`` or
    ``bytes``, whose characters would each become an item."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ArgumentError(f"{expected}, got {value!r:.80}")


def read_lines(stream: Iterable[str | bytes]) -> Iterator[bytes]:
    """The lines of a binary stream or of any iterable of lines, as bytes without line ends.

    Each line is yielded as soon as it is read, so a pipe is answered line by line. ArgumentError for a single
    ``str`` or ``bytes``, whose characters would each become a line.
    """
    require_items("a text is a list, a file or another iterable of lines", stream)
    return (without_end(as_bytes(line)) for line in stream)


def is_stream(path: str) -> bool:
    """Whether ``path`` is standard input or a pipe, which can be read only once."""
    return path in STANDARD_INPUT or is_special(path)


def is_file(path: str) -> bool:
    """Whether ``path`` is a file, or standard input that comes from one. Then all lines are available,
    whereas the writer of a pipe may wait for the answer to one line before sending the next."""
    if path not in STANDARD_INPUT:
        return os.path.isfile(path)
    try:
        return stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (AttributeError, OSError, ValueError):  # closed, or not a stream of the system
        return False


POLL_SECONDS = 0.5
"""How often ``ending_with`` looks whether to end while a pipe has no data."""


class _Polled(io.RawIOBase):
    """See ``ending_with``."""

    def __init__(self, raw: io.FileIO, end: Callable[[], None]) -> None:
        super().__init__()
        self._raw, self._end = raw, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._end()
        while not select.select([self._raw], [], [], POLL_SECONDS)[0]:
            self._end()
        return self._raw.readinto(buffer)


def ending_with(stream: BinaryIO, end: Callable[[], None]) -> BinaryIO:
    """An opened, unread stream that calls ``end``, which may raise, also while it waits for data of a pipe;
    Python would go on waiting after a signal. Files and streams of Python are returned as they are."""
    raw = getattr(stream, "raw", None)
    if os.name != "posix" or not isinstance(raw, io.FileIO) or stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return stream
    return cast(BinaryIO, io.BufferedReader(_Polled(raw, end)))


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """Open a file to read bytes; ``stdin`` or ``-`` is standard input, ``*.gz`` is decompressed."""
    path = path_text(path)
    if path in STANDARD_INPUT:
        yield _open(sys.stdin, "standard input").buffer
    elif path.endswith(".gz"):
        with _Unpacked(path, "rb") as stream:
            try:
                yield cast(BinaryIO, stream)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                plain = isinstance(error, gzip.BadGzipFile) and not stream.tell()
                hint = "; a text that is not compressed needs a name without .gz" if plain else ""
                raise OSError(f"{path} is damaged: {error}{hint}") from error
    else:
        with open(path, "rb") as stream:
            yield stream


def _open(stream: Any, name: str) -> Any:
    """One of Python's standard streams. OSError if it is None, as in a process started with it closed."""
    if stream is None:
        raise OSError(errno.EBADF, "it is closed", name)
    return stream


class _Unpacked(gzip.GzipFile):
    """A gzip file with lines of at most ``MAX_LINE_BYTES``: a small file may hold one endless line."""

    def readline(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise OSError(f"{self.name}: a line of more than {MAX_LINE_BYTES} bytes")
        return line


def read_whole(path: str, most: int | None = None) -> bytes:
    """The bytes of a file, at most the first ``most``.

    OSError if it cannot be read, or decompresses to more than ``expansion_limit`` allows for its size.
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
def naming(name: str) -> Iterator[None]:
    """Add ``name`` to an OSError of the block that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, name) from None
        raise


class OutputFile(io.FileIO):
    """A file to write; its errors name it."""

    def write(self, data: Any, /) -> int:
        with naming(str(self.name)):
            return super().write(data)


@contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """Open a file to write bytes; ``stdout`` or ``-`` is standard output, ``*.gz`` is compressed.
    OSError, naming the file, if it cannot be written, as on a full disk."""
    if path in STANDARD_OUTPUT:
        yield _open(sys.stdout, "standard output").buffer
        return
    with io.BufferedWriter(OutputFile(path, "wb")) as stream:
        if path.endswith(".gz"):
            with gzip.GzipFile(path, "wb", fileobj=stream) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield stream


def silence_standard_output() -> None:
    """Discard output still buffered for a closed pipe, so that exiting raises nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush_standard_output() -> None:
    """Write what is still buffered. If that fails, discard it so that exiting raises nothing more, and raise
    the OSError."""
    try:
        with naming("standard output"):
            print(end="", flush=True)
    except OSError:
        silence_standard_output()
        raise


END = 1 << 16
"""How many bytes are hashed at the start and at the end of a file; hashing all of it takes too long."""


class Fingerprint(NamedTuple):
    """Identifies the contents of a file.

    path: as given. size: in bytes; None for a stream. ends: the hexadecimal hash of the first and last bytes.
    """

    path: str
    size: int | None
    ends: str

    @classmethod
    def of(cls, path: str) -> Fingerprint:
        """The fingerprint of a file as it is on disk. OSError if it cannot be read."""
        if is_stream(path):
            return cls(path, None, "")
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            ends = stream.read(END)
            stream.seek(max(size - END, 0))
            ends += stream.read(END)
        return cls(path, size, hashlib.sha256(ends).hexdigest()[:16])

    def differs(self, before: Fingerprint) -> bool:
        """Whether the contents differ, whatever the paths; False for streams."""
        return None not in (self.size, before.size) and self[1:] != before[1:]


def changes(before: Sequence[Fingerprint], now: Sequence[Fingerprint]) -> list[str]:
    """One line for each file of a corpus that has changed."""
    lines = [
        f"{new.path} has {new.size:,} bytes, {old.path} had {old.size:,}"
        if new.size != old.size
        else f"{new.path} has other contents than {old.path} had"
        for old, new in zip(before, now, strict=False)
        if new.differs(old)
    ]
    if len(before) != len(now):
        lines.append(f"there are {len(now)} files, and there were {len(before)}")
    return lines


def to_text(fingerprints: Sequence[Fingerprint]) -> str:
    """The fingerprints as one line of ASCII."""
    return json.dumps(fingerprints)


def from_text(text: str) -> list[Fingerprint]:
    """The inverse of ``to_text``; ValueError for anything else."""
    try:
        found = [Fingerprint(*fields) for fields in json.loads(text)]
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not all(isinstance(each.path, str) and isinstance(each.size, int | None) for each in found):
        raise ValueError("expected the path, size and hash of each file")
    return found
