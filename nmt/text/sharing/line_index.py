"""Where the lines of a file are: counted in one pass, found by their offset, never held in memory."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from nmt.text.lines import open_input

CHUNK = 1 << 20  # bytes read at once


class LineIndex:
    """The number of lines of a file, and where they are.

    path: a file for ``open_input`` that can be read more than once. OSError if it cannot be read.

    lines: how many there are, including a last line without a line end. bytes: the size of the text,
    uncompressed. checksum: its CRC-32. The index itself has one number for each ``CHUNK`` of the text.
    """

    def __init__(self, path: str) -> None:
        self.path, self.bytes, self.checksum = path, 0, 0
        self._ends = [0]  # how many lines end before each chunk, and in all
        last = b"\n"
        with open_input(path) as stream:
            while chunk := stream.read(CHUNK):
                self.bytes += len(chunk)
                self.checksum = zlib.crc32(chunk, self.checksum)
                self._ends.append(self._ends[-1] + chunk.count(b"\n"))
                last = chunk[-1:]
        self.lines = self._ends[-1] + (last != b"\n")

    @contextmanager
    def open(self, lines: range) -> Iterator[Iterator[bytes]]:
        """The lines with these numbers, from 0, including their line ends.

        The file is read from the chunk in which they begin; a compressed file is unpacked up to there.
        """
        chunk = max(bisect_left(self._ends, lines.start) - 1, 0)
        before = self._ends[chunk]
        with open_input(self.path) as stream:
            stream.seek(chunk * CHUNK)  # in the middle of line ``before``
            yield islice(stream, lines.start - before, lines.stop - before)
