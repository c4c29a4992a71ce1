"""The files of a corpus side by side: one line of each makes a row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from nmt.text.corpus.background import Stopped
from nmt.text.corpus.errors import CorpusError
from nmt.text.lines import STANDARD_INPUT, open_input
from nmt.text.parallel import ParallelLines

CHUNK = 1 << 20
LOOK_EVERY = 1 << 12  # rows between looks whether to stop

Row = tuple[bytes, ...]
"""A line of each file, without their ends."""


@dataclass(frozen=True)
class TextSize:
    """How much text there is: rows, and the bytes of all files, unpacked."""

    rows: int
    bytes: int


class ParallelText:
    """Files of equally many lines. ``*.gz`` is unpacked; ``stdin`` or ``-`` is standard input.

    is_stream: one of them is standard input or a pipe, so that they can be read once.
    stopped: once it returns True, ``rows`` raises Stopped.

    Source: Marian's ``--train-sets``. OSError for a file that cannot be read.
    """

    def __init__(self, paths: Sequence[str], stopped: Callable[[], bool] | None = None) -> None:
        self.paths = tuple(paths)
        self._stopped = stopped
        self.is_stream = any(map(is_stream, paths))
        self._read_before = False
        self._size: TextSize | None = None

    def rows(self) -> Iterator[Row]:
        """The rows from the first one on. CorpusError if a file is empty, or ends before another."""
        if self.is_stream and self._read_before:
            raise CorpusError(
                f"{', '.join(self.paths)}: standard input and pipes have one epoch, which has been read; "
                "give --train-sets files, or end training with --after 1e"
            )
        self._read_before = True
        names = [f"file {path}" for path in self.paths]
        with ExitStack() as stack:
            lines = ParallelLines([stack.enter_context(open_input(path)) for path in self.paths], names)
            number = -1
            for number, row in enumerate(lines):
                if not number % LOOK_EVERY and self._stopped and self._stopped():
                    raise Stopped
                yield row
            lines.check()
            if number < 0:
                raise CorpusError(f"{', '.join(self.paths)}: no lines to train on")

    def size(self) -> TextSize:
        """How much there is, from a pass over the files at the first call; not of standard input.

        CorpusError if the files have not equally many lines.
        """
        if self._size is None:
            counts = [_count(path) for path in self.paths]
            lines = [count.rows for count in counts]
            if len(set(lines)) > 1 or not lines[0]:
                found = ", ".join(f"{path}: {count}" for path, count in zip(self.paths, lines, strict=True))
                raise CorpusError(f"training files must have equally many lines, at least one; got {found}")
            self._size = TextSize(lines[0], sum(count.bytes for count in counts))
        return self._size


def is_stream(path: str) -> bool:
    """Whether it is standard input or a pipe, which can be read only once."""
    special = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    return path in STANDARD_INPUT or special


def _count(path: str) -> TextSize:
    lines, size, last = 0, 0, b"\n"
    with open_input(path) as stream:
        while chunk := stream.read(CHUNK):
            lines += chunk.count(b"\n")
            size += len(chunk)
            last = chunk[-1:]
    return TextSize(lines + (last != b"\n"), size)
