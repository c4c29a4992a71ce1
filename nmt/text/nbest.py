"""N-best lists as input: Marian's format, read line by line and scored again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mgraph.errors import MGraphError
from nmt.text.lines import read_lines

SEPARATOR = b" ||| "
LEAST_FIELDS = 4  # number, text, features, score
MOST_DIGITS = 20  # of the number


class NBestListError(MGraphError, ValueError):
    """A line is none of an n-best list, or the list goes on when the sources have ended."""


class NBestRows:
    """The texts of an n-best list with their sources, until an entry cannot be read.

    An entry whose number is higher than all before it belongs to the next line of the sources, whatever the
    number is, as in Marian (``--n-best`` of its scorer).
    """

    def __init__(self, sources: Sequence[Iterable[str | bytes]], entries: Iterable[str | bytes]) -> None:
        self._sources = [read_lines(source) for source in sources]
        self._entries = entries
        self._taken: dict[int, bytes] = {}
        self._problem = ""

    def __iter__(self) -> Iterator[tuple[bytes, ...]]:
        highest, lines = -1, tuple(b"" for _ in self._sources)
        for place, entry in enumerate(read_lines(self._entries), 1):
            fields = entry.split(SEPARATOR)
            if len(fields) < LEAST_FIELDS or not _is_number(fields[0]):
                self._problem = (
                    f"line {place} of the n-best list: expected 'number ||| text ||| features ||| score', "
                    f"got '{entry[:80].decode('utf-8', 'replace')}'"
                )
                return
            if int(fields[0]) > highest:
                found = [next(source, None) for source in self._sources]
                if None in found:
                    self._problem = f"line {place} of the n-best list: the source has ended before it"
                    return
                highest, lines = int(fields[0]), tuple(line for line in found if line is not None)
            self._taken[place - 1] = entry
            yield (*lines, fields[1])

    def entry(self, number: int) -> bytes:
        """The whole line, by its number from 0; it can be had once, after its text."""
        return self._taken.pop(number)

    def check(self) -> None:
        """NBestListError if the entries were not read to the end."""
        if self._problem:
            raise NBestListError(self._problem)


def with_feature(entry: bytes, feature: str, fields: Sequence[str] = ()) -> str:
    """The line of an n-best list with ``fields`` before its features and ``feature`` after them.

    Source: Marian's scorer, ``--n-best-feature``, ``--word-scores`` and ``--alignment``.
    """
    parts = [part for part in entry.decode("utf-8", "surrogateescape").split("|||") if part]
    added = "".join(f" {field} |||" for field in fields)
    parts[2] = f"{added}{parts[2]}{feature} "
    return "|||".join(parts)


def _is_number(field: bytes) -> bool:
    return field.strip().isdigit() and len(field) <= MOST_DIGITS
