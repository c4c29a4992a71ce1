"""Parallel texts: one line of each makes a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest

from mgraph.errors import MGraphError
from nmt.settings import OptionError
from nmt.settings.training import TrainOptions
from nmt.text.lines import ending_with, open_input, read_lines

Row = tuple[bytes, ...]
"""A line of each text, without line ends."""


class ParallelTextError(MGraphError, ValueError):
    """Parallel texts do not have the same number of lines."""


class CorpusError(MGraphError, ValueError):
    """Training files do not match, are empty, or cannot be read a second time."""


def source_names(sources: int) -> list[str]:
    """The names of the source texts in messages."""
    return ["source"] if sources == 1 else [f"source {number + 1}" for number in range(sources)]


class ParallelLines:
    """The rows of parallel texts, until the shortest ends.

    names: those of the texts, for the error. done: number of rows to skip.
    """

    def __init__(self, texts: Iterable[Iterable[str | bytes]], names: Iterable[str], done: int = 0) -> None:
        self._rows = zip_longest(*map(read_lines, texts))
        self._names, self._done = tuple(names), done
        self._problem = ""

    def __iter__(self) -> Iterator[Row]:
        for number, row in enumerate(self._rows):
            ended = [name for name, line in zip(self._names, row, strict=True) if line is None]
            if ended:
                others = "the other goes on" if len(row) == 2 else "others go on"
                self._problem = f"the {ended[0]} ends after {number} lines, {others}"
                return
            if number >= self._done:
                yield row

    def check(self) -> None:
        """ParallelTextError if one text was longer than another."""
        if self._problem:
            raise ParallelTextError(self._problem)


def read_rows(paths: Sequence[str], end: Callable[[], None] | None = None) -> Iterator[Row]:
    """The rows of parallel files, opened by ``open_input``. ``end``: see ``ending_with``.

    OSError for a file that cannot be read, ParallelTextError if one ends before another.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(open_input(path)) for path in paths]
        texts = [ending_with(text, end) for text in opened] if end else opened
        rows = ParallelLines(texts, [f"file {path}" for path in paths])
        yield from rows
        rows.check()


SEPARATOR = b" ||| "
LEAST_FIELDS = 4  # number, text, features, score
MOST_DIGITS = 20  # of the number


class NBestListError(MGraphError, ValueError):
    """A line is not an n-best entry, the sources end before the list, or only the list is empty."""


class NBestRows:
    """The texts of an n-best list with their sources, until an invalid entry.

    An entry with a higher number than the one before it belongs to the next source line, whatever the number,
    as in Marian's scorer (``--n-best``).

    done: number of entries to skip. sentences: how many source lines have been read.
    """

    def __init__(
        self, sources: Sequence[Iterable[str | bytes]], entries: Iterable[str | bytes], done: int = 0
    ) -> None:
        self._sources = [read_lines(source) for source in sources]
        self._entries, self._done = entries, done
        self._taken: dict[int, bytes] = {}
        self._problem = ""
        self.sentences = 0

    def __iter__(self) -> Iterator[Row]:
        last, lines = -1, tuple(b"" for _ in self._sources)
        for place, entry in enumerate(read_lines(self._entries), 1):
            fields = entry.split(SEPARATOR)
            if len(fields) < LEAST_FIELDS or not _is_number(fields[0]):
                self._problem = (
                    f"line {place} of the n-best list: expected 'number ||| text ||| features ||| score', "
                    f"got '{entry[:80].decode('utf-8', 'replace')}'"
                )
                return
            if int(fields[0]) > last:
                found = [next(source, None) for source in self._sources]
                if None in found:
                    self._problem = f"line {place} of the n-best list: the source has no more lines"
                    return
                lines = tuple(line for line in found if line is not None)
                self.sentences += 1
            last = int(fields[0])
            if place > self._done:
                self._taken[place - 1] = entry
                yield (*lines, fields[1])
        if last < 0 and any(next(source, None) is not None for source in self._sources):
            self._problem = "the n-best list is empty, and the source is not"

    def entry(self, number: int) -> bytes:
        """Take the whole line ``number``, from 0. Call this once per line, after its row was read."""
        return self._taken.pop(number)

    def check(self) -> None:
        """NBestListError if the list was not read to its end, or is empty and a source is not."""
        if self._problem:
            raise NBestListError(self._problem)


def _is_number(field: bytes) -> bool:
    return field.strip().isdigit() and len(field) <= MOST_DIGITS


EXTRAS = ("guided-alignment", "data-weighting")
"""The options for fields other than sentences."""


@dataclass(frozen=True)
class Fields:
    """The layout of a corpus.

    paths: its files. tsv: whether it is one file with tab-separated fields (``--tsv``).
    sentences: numbers of the fields that hold sentences, sources first.
    alignment, weights: number of the field for ``--guided-alignment`` and ``--data-weighting``, or None.
    """

    paths: tuple[str, ...]
    tsv: bool
    sentences: tuple[int, ...]
    alignment: int | None = None
    weights: int | None = None

    @property
    def number(self) -> int:
        """How many fields there are."""
        return len(self.sentences) + (self.alignment is not None) + (self.weights is not None)

    @classmethod
    def from_options(cls, options: TrainOptions, streams: int) -> Fields:
        """The layout that training options give for ``streams`` streams; OptionError if they do not fit."""
        paths = tuple(options.train_sets)
        extras = options.extra_fields
        number = streams + len(extras)
        if "guided-alignment" in extras and (options.right_left or streams != 2):
            raise OptionError("--guided-alignment is for models with one source, and without --right-left")
        if options.tsv:
            places = {name: _place(value, name) for name, value in extras.items()}
            if len({*places.values()}) < len(places) or any(place >= number for place in places.values()):
                raise OptionError(
                    "--guided-alignment and --data-weighting: with --tsv expected different field numbers "
                    f"from 0 to {number - 1}, got {' and '.join(map(str, places.values()))}"
                )
            if options.tsv_fields not in (0, number):
                raise OptionError(
                    f"--tsv-fields: expected {number} ({streams} for vocabularies, {len(extras)} "
                    f"for alignments and weights), got {options.tsv_fields}"
                )
        elif len(paths) != streams:
            raise OptionError(
                f"--train-sets: expected {streams} files, one for each vocabulary, got {len(paths)}"
            )
        else:
            paths += tuple(extras.values())
            places = {name: place for place, name in enumerate(extras, streams)}
        sentences = tuple(place for place in range(number) if place not in places.values())
        return cls(paths, options.tsv, sentences, *map(places.get, EXTRAS))


def _place(value: str, name: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise OptionError(f"--{name}: with --tsv expected a field number, from 0, got '{value}'")
    return int(value)
