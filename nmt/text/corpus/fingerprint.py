"""What tells one corpus from another: for each file its size, and a hash of how it begins and ends."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import NamedTuple

from nmt.text.corpus.text import is_stream

END = 1 << 16
"""So many bytes of the beginning, and of the end, are hashed: the rest of a large file takes too long."""


class Fingerprint(NamedTuple):
    """Of a file.

    path: as it was given. size: in bytes; None for what can be read only once. ends: the hash of its first
    and last bytes, in hexadecimal.
    """

    path: str
    size: int | None
    ends: str

    @classmethod
    def of(cls, path: str) -> Fingerprint:
        """The fingerprint of what is there now, packed if it is. OSError for a file that cannot be read."""
        if is_stream(path):
            return cls(path, None, "")
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            ends = stream.read(END)
            stream.seek(max(size - END, 0))
            ends += stream.read(END)
        return cls(path, size, hashlib.sha256(ends).hexdigest()[:16])

    def differs(self, before: Fingerprint) -> bool:
        """Whether it is of other contents, wherever they are; False if nobody can know."""
        return None not in (self.size, before.size) and self[1:] != before[1:]


def changes(before: Sequence[Fingerprint], now: Sequence[Fingerprint]) -> list[str]:
    """How the files of a corpus differ from those before, a line for each that does."""
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
    """One line, of ASCII."""
    return json.dumps(fingerprints)


def from_text(text: str) -> list[Fingerprint]:
    """What ``to_text`` was given; ValueError for anything else."""
    try:
        found = [Fingerprint(*fields) for fields in json.loads(text)]
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not all(isinstance(each.path, str) and isinstance(each.size, int | None) for each in found):
        raise ValueError("expected the path, size and hash of each file")
    return found
