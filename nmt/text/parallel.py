"""Texts side by side: one line of each makes a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest

from mgraph.errors import MGraphError
from nmt.settings import OptionError
from nmt.settings.training import TrainOptions
from nmt.text.lines import open_input, read_lines

Row = tuple[bytes, ...]
"""A line of each text, without their ends."""


class ParallelTextError(MGraphError, ValueError):
    """Texts that belong together do not have the same number of lines."""


class CorpusError(MGraphError, ValueError):
    """Training files do not belong together, hold nothing, or cannot be read a second time."""


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

    def __iter__(self) -> Iterator[Row]:
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


def read_rows(paths: Sequence[str]) -> Iterator[Row]:
    """The lines of files side by side; ``*.gz`` is unpacked, ``stdin`` or ``-`` is standard input.

    OSError for a file that cannot be read, ParallelTextError at the end of one that ends before another.
    """
    with ExitStack() as stack:
        texts = [stack.enter_context(open_input(path)) for path in paths]
        rows = ParallelLines(texts, [f"file {path}" for path in paths])
        yield from rows
        rows.check()


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

    def __iter__(self) -> Iterator[Row]:
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


def _is_number(field: bytes) -> bool:
    return field.strip().isdigit() and len(field) <= MOST_DIGITS


EXTRAS = ("guided-alignment", "data-weighting")
"""Options that name what is beside the sentences."""


@dataclass(frozen=True)
class Fields:
    """The layout of a corpus.

    paths: its files. tsv: there is one, and a line of it holds all fields with tabs between (``--tsv``).
    sentences: numbers of the fields that hold sentences, sources first.
    alignment, weights: numbers of the fields that hold them; None if none does (``--guided-alignment``,
        ``--data-weighting``).
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
        """The layout that options describe, with so many ``streams`` of sentences.

        OptionError if they contradict each other, or the streams.
        """
        paths = tuple(options.train_sets)
        extras = options.extra_fields
        number = streams + len(extras)
        if "guided-alignment" in extras and (options.right_left or streams != 2):
            raise OptionError("--guided-alignment is for models with one source, and without --right-left")
        if options.tsv:
            places = {name: _place(value, name) for name, value in extras.items()}
            if len({*places.values()}) < len(places) or any(place >= number for place in places.values()):
                raise OptionError(
                    "--guided-alignment and --data-weighting: with --tsv the numbers of different fields "
                    f"from 0 to {number - 1}, got {' and '.join(map(str, places.values()))}"
                )
            if options.tsv_fields not in (0, number):
                raise OptionError(
                    f"--tsv-fields: {number} fields are needed ({streams} for vocabularies, {len(extras)} "
                    f"for alignments and weights), got {options.tsv_fields}"
                )
        elif len(paths) != streams:
            raise OptionError(
                f"--train-sets: {streams} files are needed, one for each vocabulary, got {len(paths)}"
            )
        else:
            paths += tuple(extras.values())
            places = {name: place for place, name in enumerate(extras, streams)}
        sentences = tuple(place for place in range(number) if place not in places.values())
        return cls(paths, options.tsv, sentences, *map(places.get, EXTRAS))


def _place(value: str, name: str) -> int:
    """The number of the field that an option names."""
    if not value.isascii() or not value.isdigit():
        raise OptionError(f"--{name}: with --tsv the number of a field, from 0, got '{value}'")
    return int(value)
