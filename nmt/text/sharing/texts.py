"""Parallel texts divided into shares: ranges of lines, one after another."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise

from nmt.text.parallel import NBestRows, ParallelTextError
from nmt.text.sharing.line_index import LineIndex


class SharedTexts:
    """Parallel texts, divided into shares.

    paths: files that can be read more than once. shares: how many; their sizes differ by at most a line, so
    some are empty if there are fewer lines than shares. n_best: the last text is an n-best list
    (``NBestRows``); a share then has some lines of the sources, and all their entries.

    The constructor reads each file once. ParallelTextError if one has more lines than another, NBestListError
    for an invalid line of an n-best list, OSError for a file that cannot be read.

    texts: the indexes of the files.
    """

    def __init__(self, paths: Sequence[str], shares: int, *, n_best: bool = False) -> None:
        self.texts = [LineIndex(path) for path in paths]
        parallel = self.texts[:-1] if n_best else self.texts
        if len({text.lines for text in parallel}) > 1:
            found = ", ".join(f"{text.path}: {text.lines}" for text in parallel)
            raise ParallelTextError(f"texts to share need the same number of lines, got {found}")
        begins = self._entries() if n_best else None
        ranges = _divided(len(begins) - 1 if begins is not None else self.texts[0].lines, shares)
        self._ranges = [[lines] * len(self.texts) for lines in ranges]
        if begins is not None:
            for lines, each in zip(ranges, self._ranges, strict=True):
                each[-1] = range(begins[lines.start], begins[lines.stop])

    def rows(self, share: int) -> range:
        """The numbers of a share's rows: lines, or entries of the n-best list."""
        return self._ranges[share][-1]

    @contextmanager
    def open(self, share: int) -> Iterator[list[Iterator[bytes]]]:
        """The lines of a share, for each text."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(text.open(lines))
                for text, lines in zip(self.texts, self._ranges[share], strict=True)
            ]

    def _entries(self) -> array[int]:
        """The number of each sentence's first entry, and at the end the number of entries."""
        begins = array("Q")
        with ExitStack() as stack:
            *sources, entries = (stack.enter_context(text.open(range(text.lines))) for text in self.texts)
            rows = NBestRows(sources, entries)
            for number, _ in enumerate(rows):
                rows.entry(number)
                if rows.sentences > len(begins):
                    begins.append(number)
            rows.check()
        begins.append(self.texts[-1].lines)
        return begins


def _divided(lines: int, shares: int) -> list[range]:
    """The ranges of lines of ``shares`` shares."""
    return [range(*ends) for ends in pairwise(lines * share // shares for share in range(shares + 1))]
