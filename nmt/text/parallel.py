"""Lines of several texts together: one line of each makes a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from mgraph.errors import MGraphError
from nmt.text.lines import read_lines


class ParallelTextError(MGraphError, ValueError):
    """Texts that belong together do not have the same number of lines."""


def source_names(sources: int) -> list[str]:
    """What the texts of so many source streams are called in messages."""
    return ["source"] if sources == 1 else [f"source {number + 1}" for number in range(sources)]


class ParallelLines:
    """The lines of texts side by side, as long as all of them last.

    names: of the texts, for the error.
    """

    def __init__(self, texts: Iterable[Iterable[str | bytes]], names: Iterable[str]) -> None:
        self._rows = zip_longest(*map(read_lines, texts))
        self._names = tuple(names)
        self._problem = ""

    def __iter__(self) -> Iterator[tuple[bytes, ...]]:
        for number, row in enumerate(self._rows):
            ended = [name for name, line in zip(self._names, row, strict=True) if line is None]
            if ended:
                others = "the other goes on" if len(row) == 2 else "others go on"
                self._problem = f"the {ended[0]} ends after {number} lines, {others}"
                return
            yield row

    def check(self) -> None:
        """ParallelTextError if one text had more lines than another."""
        if self._problem:
            raise ParallelTextError(self._problem)
