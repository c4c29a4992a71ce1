"""Parts: an output written by several processes, each of which may be killed at any moment.

A part is a file that grows line by line. Every few seconds a note, a file next to it, records which run the
part belongs to and how much of it is on disk. A process that resumes a part cuts off what came after the
note, such as half a line, and compares the checksum of the rest: what a crashed machine or a second writer
damaged is written again.
"""

from __future__ import annotations

import io
import json
import logging
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, BinaryIO

from mgraph.errors import MGraphError
from mgraph.files.items import replacing
from nmt.runtime.file_locks import lock_file
from nmt.settings import OptionError
from nmt.text.lines import OutputFile, naming

logger = logging.getLogger(__name__)

NOTE = ".done.json"
"""The file name extension of a note."""
NOTE_SECONDS = 5.0
"""The time between notes; killing the process costs at most this much work."""
CHUNK = 1 << 20

Run = Mapping[str, Any]
"""What an output is made from: values of JSON types by option name."""
Sums = Mapping[str, float]
"""Totals over rows, by name."""


def added(one: Sums, other: Sums) -> Sums:
    """The totals over the rows of both."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


class PartError(MGraphError):
    """A part is not what its writer noted."""


@dataclass(frozen=True)
class Note:
    """How much of a file is done.

    run: what it is made from. rows: how many input rows are done. bytes, checksum: the size and the CRC-32 of
    their output. sums: totals over these rows. complete: whether these are all rows.
    """

    run: Run
    rows: int = 0
    bytes: int = 0
    checksum: int = 0
    sums: Sums = field(default_factory=dict)
    complete: bool = False

    @classmethod
    def read(cls, path: str) -> Note | None:
        """The note next to ``path``; None if there is none, or the file there is not a note."""
        try:
            with open(path + NOTE, "rb") as file:
                found = cls(**json.load(file))
        except (FileNotFoundError, TypeError, ValueError, RecursionError):
            return None
        numbers = (found.rows, found.bytes, found.checksum)
        return found if isinstance(found.run, dict) and all(isinstance(n, int) for n in numbers) else None

    def is_complete(self, path: str) -> bool:
        """Whether all of the file is there."""
        try:
            return self.complete and os.path.getsize(path) == self.bytes
        except FileNotFoundError:
            return False

    def differing(self, run: Run) -> list[str]:
        """The options whose values differ from those in ``run``."""
        return [f"--{name}" for name in sorted({*self.run, *run}) if self.run.get(name) != run.get(name)]

    def write(self, path: str) -> None:
        """Write the note next to ``path``, to disk."""
        with replacing(path + NOTE) as file:
            file.write(json.dumps(asdict(self)).encode() + b"\n")


class PartWriter:
    """Continues a part where its note ends.

    file: open at that place. note: the last one.
    """

    def __init__(self, file: BinaryIO, path: str, note: Note) -> None:
        self._file, self._path, self._done = file, path, note
        self._noted = time.monotonic()

    @property
    def rows(self) -> int:
        """How many rows are written."""
        return self._done.rows

    def write(self, text: str, counts: Sums) -> None:
        """Write the output of the next row, one line or several, and add ``counts`` to the sums."""
        data = text.encode("utf-8", "surrogateescape") + b"\n"
        self._file.write(data)
        self._file.flush()
        done = self._done
        self._done = Note(  # in one step: an interrupt comes before or after it
            done.run,
            done.rows + 1,
            done.bytes + len(data),
            zlib.crc32(data, done.checksum),
            added(done.sums, counts),
        )
        if time.monotonic() - self._noted >= NOTE_SECONDS:
            self.note()

    def note(self, complete: bool = False) -> None:
        """Write a note of how far the part is."""
        with naming(self._path):
            os.fsync(self._file.fileno())
        replace(self._done, complete=complete).write(self._path)
        self._noted = time.monotonic()


class Part:
    """One part of the output of ``run``."""

    def __init__(self, path: str, run: Run) -> None:
        self.path, self.run = path, run

    def check_run(self) -> None:
        """OptionError if another run has written a row of the part."""
        _ = self.note

    @property
    def note(self) -> Note:
        """The part's note; an empty one if there is none, or if it is that of another run without a row.
        OptionError if another run has written a row."""
        found = Note.read(self.path) or Note(self.run)
        differ = found.differing(self.run)
        if differ and found.rows:
            raise OptionError(
                f"{self.path} was started with another value of {', '.join(differ)}: "
                "give another --output, or remove the parts with their notes to start over"
            )
        return Note(self.run) if differ else found

    @property
    def is_complete(self) -> bool:
        """Whether the part is complete."""
        return self.note.is_complete(self.path)

    @contextmanager
    def writing(self) -> Iterator[PartWriter | None]:
        """Continue the part; it is complete if the block raises nothing. Yields None if another process is
        writing the part. An OSError of its file names it.

        However the block ends, a note records what was written. Where files cannot be locked, only the
        checksum shows that there were two writers.
        """
        with io.BufferedRandom(OutputFile(self.path, "r+b", opener=_made)) as file:
            try:
                lock_file(file.fileno())
            except BlockingIOError:
                yield None
                return
            note = self._intact(file)
            file.truncate(note.bytes)
            file.seek(note.bytes)
            writer = PartWriter(file, self.path, note)
            try:
                yield writer
            except BaseException:
                with suppress(OSError):
                    writer.note()
                raise
            writer.note(complete=True)

    def copy(self, note: Note, output: BinaryIO) -> None:
        """Append the part to ``output``. PartError if it is not what ``note`` says."""
        with open(self.path, "rb") as file:
            if _copied(file, note.bytes, output) != note.checksum:
                raise PartError(
                    f"{self.path} differs from what its writer recorded, {note.bytes} bytes with checksum "
                    f"{note.checksum:08x}: remove it, and run its share again"
                )

    def _intact(self, file: BinaryIO) -> Note:
        """The note, or an empty one if the file does not hold what the note says."""
        note, size = self.note, os.fstat(file.fileno()).st_size
        if size >= note.bytes and _copied(file, note.bytes) == note.checksum:
            return note
        problem = "differs from what its writer recorded" if size else "is gone, or empty"
        logger.warning("[shares] %s %s: started over", self.path, problem)
        return Note(self.run)


def _made(path: str, flags: int) -> int:
    """Open a file, and create it if it does not exist."""
    return os.open(path, flags | os.O_CREAT, 0o666)


def _copied(file: BinaryIO, size: int, output: BinaryIO | None = None) -> int:
    """Copy at most ``size`` bytes to ``output``, if there is one; returns their checksum."""
    checksum = 0
    while chunk := file.read(min(size, CHUNK)):
        checksum = zlib.crc32(chunk, checksum)
        size -= len(chunk)
        if output is not None:
            output.write(chunk)
    return checksum
