"""An output that several processes write in parts: files next to it that are joined when complete.

Once all parts are complete, the output replaces its predecessor as a whole and gets a note like theirs; then
the parts are removed. So a process that comes late, or runs again, finds either all parts or the output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import reduce
from gzip import GzipFile
from typing import BinaryIO, cast

from mgraph.files.items import replacing
from nmt.settings import OptionError
from nmt.text.sharing.parts import NOTE, Note, Part, Run, Sums, added


class DividedOutput:
    """An output in parts.

    path: that of the output; ``*.gz`` is compressed, its parts are not. shares: how many parts. run: what it
    is made from.

    parts: ``PATH.part-000-of-016`` and so on, in order.
    """

    def __init__(self, path: str, shares: int, run: Run) -> None:
        self.path, self.run = path, json.loads(json.dumps(run))
        width = max(3, len(str(shares)))
        names = [f"{path}.part-{number:0{width}}-of-{shares:0{width}}" for number in range(shares)]
        self.parts = [Part(name, self.run) for name in names]

    @property
    def is_joined(self) -> bool:
        """Whether the output of this run exists, however it was shared. OptionError if another run's does."""
        note = Note.read(self.path)
        if note is None or not note.is_complete(self.path):
            return False
        if differ := [name for name in note.differing(self.run) if name != "--shares"]:
            raise OptionError(
                f"{self.path} was made with another value of {', '.join(differ)}: "
                "give another --output, or remove it to start over"
            )
        return True

    @property
    def sums(self) -> Sums:
        """The totals over all rows, once the output exists."""
        note = Note.read(self.path)
        return note.sums if note else {}

    def missing(self, shares: Sequence[int]) -> Iterator[int]:
        """The ``shares`` whose parts are not complete when their turn comes; none once the output exists.
        OptionError, before the first, if another run has begun any part."""
        if not self.is_joined:
            for part in self.parts:
                part.check_run()
        for share in shares:
            # In this order, because complete parts are removed once the output exists.
            if not self.parts[share].is_complete and not self.is_joined:
                yield share

    def join(self, whole: Callable[[Sums], str] | None = None) -> bool:
        """If all parts are complete, make the output and remove them; returns whether the output exists.

        whole: makes the text of the output from the sums, instead of the parts. Several processes may join at
        the same time: they write the same bytes. PartError for a part that is not what its writer noted: the
        output stays as it was.
        """
        try:
            if not self.is_joined:
                # Each note is read once: another process may have joined, and be removing them now.
                notes = [note for part in self.parts if (note := part.note).is_complete(part.path)]
                if len(notes) < len(self.parts):
                    return self.is_joined
                self._write(notes, whole)
        except OSError:
            if not self.is_joined:  # else another process has joined, and removed a part that was needed here
                raise
        self._remove_parts()
        return True

    def _write(self, notes: Sequence[Note], whole: Callable[[Sums], str] | None) -> None:
        sums: Sums = reduce(added, [note.sums for note in notes])
        with replacing(self.path) as file, self._packed(file) as output:
            if whole:
                output.write(whole(sums).encode() + b"\n")
            else:
                for part, note in zip(self.parts, notes, strict=True):
                    part.copy(note, output)
        rows, size = sum(note.rows for note in notes), os.path.getsize(self.path)
        Note(self.run, rows, size, sums=sums, complete=True).write(self.path)

    def _packed(self, file: BinaryIO) -> AbstractContextManager[BinaryIO]:
        if not self.path.endswith(".gz"):
            return nullcontext(file)
        # Without a name and a date: all processes that join write the same bytes.
        return cast(AbstractContextManager[BinaryIO], GzipFile("", "wb", fileobj=file, mtime=0))

    def _remove_parts(self) -> None:
        for part in self.parts:
            note = Note.read(part.path)
            if note is not None and note.run == self.run:
                for path in (part.path, part.path + NOTE):
                    with suppress(FileNotFoundError):
                        os.unlink(path)
