"""The order of a corpus: Marian's random generator, and shuffling of text with it."""

from __future__ import annotations

import array
import logging
import tempfile
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import chain, islice
from typing import IO, Any, NamedTuple

import numpy as np

from nmt.settings import OptionError, require_tempdir
from nmt.settings.training import TrainOptions
from nmt.text.background import Stopped
from nmt.text.lines import is_stream, naming
from nmt.text.parallel import CorpusError, Fields, Row, read_rows
from nmt.text.sharing.line_index import LineIndex

logger = logging.getLogger(__name__)

WORDS = 624
LARGEST = 0xFFFFFFFF  # the largest number that mt19937 draws
CHUNK = 1 << 16
BUCKET_BYTES = 1 << 24
MOST_BUCKETS = 250  # open files
LOOK_EVERY = 1 << 12  # rows between checks whether to stop

Numbered = tuple[int, Row]
"""The number of a row in the files, from 0, and the row."""


class TextSize(NamedTuple):
    """The size of a text: rows, and the uncompressed bytes of all files."""

    rows: int
    bytes: int


class MersenneTwister:
    """C++'s ``std::mt19937`` with the ``std::shuffle`` of the C++ library that Marian is built with.

    The same seed gives Marian's order of the data (Matsumoto and Nishimura 1998; a Fisher-Yates shuffle that
    places two elements per random number if there are fewer than 65536 elements).

    seed: only its lowest 32 bits count, as in Marian.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.MT19937(0)
        state: Any = np.random.RandomState(seed & LARGEST).get_state(legacy=False)
        self._bits.state = state

    @property
    def text(self) -> str:
        """The state as C++ streams write it: 624 words and the position, in decimal."""
        state: Any = self._bits.state["state"]
        return " ".join(map(str, [*state["key"].tolist(), int(state["pos"])]))

    def restore(self, text: str) -> None:
        """Restore a state that the property ``text`` or Marian wrote; CorpusError if it is invalid."""
        fields = text.split()
        numbers = [int(field) for field in fields if field.isascii() and field.isdigit()]
        if not len(fields) == len(numbers) == WORDS + 1 or max(numbers) > LARGEST or numbers[-1] > WORDS:
            raise CorpusError(
                f"the state of a generator is {WORDS + 1} numbers of 32 bits (mt19937 as C++ writes it), "
                f"got {len(fields)} fields: '{text[:40]}'"
            )
        key = np.array(numbers[:-1], np.uint32)
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": numbers[-1]}}

    def below(self, number: int) -> int:
        """A random number from 0 to ``number - 1``; ``number`` is at most 2^32 - 1."""
        scale = LARGEST // number
        while (drawn := int(self._bits.random_raw())) >= number * scale:
            pass
        return drawn // scale

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Shuffle ``items`` in place."""
        count = len(items)
        if count > LARGEST // max(count, 1):
            self._shuffle_many(items)
            return
        first = 1
        if count and count % 2 == 0:
            other = self.below(2)
            items[1], items[other] = items[other], items[1]
            first = 2
        for i in range(first, count, 2):
            one, other = divmod(self.below((i + 1) * (i + 2)), i + 2)
            items[i], items[one] = items[one], items[i]
            items[i + 1], items[other] = items[other], items[i + 1]

    def order(self, count: int) -> np.ndarray:
        """The numbers from 0 to ``count - 1`` in a random order: uint32 ``[count]``."""
        numbers = array.array("I", range(count))
        self.shuffle(numbers)
        return np.frombuffer(numbers, np.uint32) if count else np.zeros(0, np.uint32)

    def _shuffle_many(self, items: MutableSequence[Any]) -> None:
        """Shuffle many items with one number each, drawn in chunks."""
        first = 1
        while first < len(items):
            ends = np.arange(first + 1, min(first + CHUNK, len(items)) + 1, dtype=np.uint64)
            for i, other in enumerate(self._below_each(ends).tolist(), first):
                items[i], items[other] = items[other], items[i]
            first += len(ends)

    def _below_each(self, ends: np.ndarray) -> np.ndarray:
        """``below`` of each of ``ends``, in order."""
        scales = np.uint64(LARGEST) // ends
        found = np.empty(len(ends), np.uint64)
        done, drawn = 0, np.zeros(0, np.uint64)
        while done < len(ends):
            if not len(drawn):
                drawn = self._bits.random_raw(len(ends) - done)
            rest = slice(done, done + len(drawn))
            refused = np.flatnonzero(drawn >= ends[rest] * scales[rest])
            good = int(refused[0]) if len(refused) else len(drawn)
            found[done : done + good] = drawn[:good] // scales[done : done + good]
            done += good
            drawn = drawn[good + 1 :]
        return found


def shuffled(
    rows: Iterator[Row], order: np.ndarray, size: TextSize, folder: str, *, bucket_bytes: int = BUCKET_BYTES
) -> Iterator[Row]:
    """The rows in ``order``: first row ``order[0]``, then row ``order[1]``, and so on.

    The first pass distributes rows over temporary files, one for each stretch of the new order; the second
    sorts one file after another in memory. Memory holds one file of about ``bucket_bytes`` (or a 250th of the
    text, if that is more), and four bytes for each row.

    rows: all rows in the order of the file. order: uint32 ``[rows]``, each number once.
    size: that of the text. folder: for the temporary files (``--tempdir``; empty for the default); they have
        no names, so none is ever left behind.

    OSError if the disk is full. CorpusError if the text no longer has ``size.rows`` rows.
    """
    buckets = min(MOST_BUCKETS, size.rows, 1 + size.bytes // bucket_bytes)
    stretch = -(-size.rows // buckets)
    with naming(f"--tempdir {folder or tempfile.gettempdir()}"), ExitStack() as stack:
        files = [
            stack.enter_context(tempfile.TemporaryFile(dir=folder or None))
            for _ in range(0, size.rows, stretch)
        ]
        width = _deal(rows, order, stretch, files)
        for number, file in enumerate(files):
            part = order[number * stretch : (number + 1) * stretch]
            file.seek(0)
            lines = file.read().split(b"\n")
            file.close()
            # A file holds its rows in the order of the text, so the first has the lowest number.
            places = np.empty(len(part), np.int64)
            places[np.argsort(part)] = np.arange(0, width * len(part), width)
            for place in places.tolist():
                yield tuple(lines[place : place + width])


def _deal(rows: Iterator[Row], order: np.ndarray, stretch: int, files: Sequence[IO[bytes]]) -> int:
    """Write each row to the file of its stretch; returns how many lines a row has."""
    bucket_of = np.empty(len(order), np.uint8)
    bucket_of[order] = np.arange(len(order)) // stretch
    writers = [file.write for file in files]
    dealt, width = 0, 1
    for bucket, row in zip(bucket_of.tobytes(), rows, strict=False):
        writers[bucket](b"\n".join(row) + b"\n")
        dealt += 1
        width = len(row)
    if dealt < len(order) or next(rows, None) is not None:
        raise _changed(len(order))
    return width


def _changed(lines: int) -> CorpusError:
    return CorpusError(
        f"the training text had {lines} lines when counted, and now has a different number: "
        "it must not change during training"
    )


class Rows:
    """The rows of a corpus: one line of each file, in file order or reshuffled for each epoch.

    options: with ``--shuffle-in-ram`` the text stays in memory, else it is shuffled through files in
        ``--tempdir``.
    fields: with the paths of files that have the same number of lines, compressed (``*.gz``) or not.
        ``stdin`` or ``-`` is standard input; like a pipe, it is read once. No file is opened yet.
    stopped: once it returns True, reading raises Stopped.

    OptionError, before anything is read, if a stream is to be shuffled, or in a folder that does not exist.
    Reading rows raises CorpusError for empty files, for different numbers of lines when counted or after
    that, and for a second epoch of a stream; ParallelTextError for a file that ends before another; OSError
    for a file that cannot be read.
    """

    def __init__(
        self, options: TrainOptions, fields: Fields, stopped: Callable[[], bool] | None = None
    ) -> None:
        self.paths, self.shuffled = fields.paths, options.shuffle == "data"
        self._once = any(map(is_stream, self.paths))
        if self.shuffled and self._once:
            raise OptionError(
                "--shuffle data: standard input and pipes cannot be shuffled; add --shuffle batches or none, "
                "or give --train-sets files"
            )
        self._in_memory, self._folder = options.shuffle_in_ram, options.tempdir
        if self.shuffled and not self._in_memory and self._folder:
            require_tempdir(self._folder)
        self._stopped = stopped
        self._read_before = False
        self._kept: list[Row] | None = None
        self._stream: Iterator[Row] | None = None

    def sample(self, size: int) -> list[Numbered]:
        """Some rows in file order: the first ``size``, or spread over the text if rows are shuffled."""
        if self.shuffled:
            step = max(1, self._size.rows // size)
            return list(islice(enumerate(self._rows()), 0, step * size, step))
        rows = self._rows()
        first = list(islice(rows, size))
        if self._once:
            self._kept, self._stream = first, rows
        return list(enumerate(first))

    def epoch(self, generator: MersenneTwister) -> Iterator[Numbered]:
        """The rows of the next epoch, in an order that ``generator`` draws."""
        if self._stream is not None:
            kept, rows, self._kept, self._stream = self._kept or [], self._stream, None, None
            return enumerate(chain(kept, rows))
        if not self.shuffled:
            return enumerate(self._rows())
        size = self._size
        logger.info("[data] Shuffling data")
        order = generator.order(size.rows)
        if self._in_memory:
            if self._kept is None:
                self._kept = list(self._rows())
            kept = self._kept
            if len(kept) != size.rows:
                raise _changed(size.rows)
            return ((number, kept[number]) for number in order.tolist())
        rows = shuffled(self._rows(), order, size, self._folder)
        return zip(map(int, order), rows, strict=True)

    def _rows(self) -> Iterator[Row]:
        """All rows, in file order."""
        if self._once and self._read_before:
            raise CorpusError(
                f"{', '.join(self.paths)}: standard input and pipes can be read for one epoch only; "
                "give --train-sets files, or stop training with --after 1e"
            )
        self._read_before = True
        number = -1
        for number, row in enumerate(read_rows(self.paths, self._end)):
            if not number % LOOK_EVERY:
                self._end()
            yield row
        if number < 0:
            raise CorpusError(f"{', '.join(self.paths)}: no lines to train on")

    def _end(self) -> None:
        if self._stopped and self._stopped():
            raise Stopped

    @cached_property
    def _size(self) -> TextSize:
        """The size of the text, from a pass over the files."""
        texts = list(map(LineIndex, self.paths))
        if len({text.lines for text in texts}) > 1 or not texts[0].lines:
            found = ", ".join(f"{text.path}: {text.lines}" for text in texts)
            raise CorpusError(f"training files must have the same number of lines, at least 1; got {found}")
        return TextSize(texts[0].lines, sum(text.bytes for text in texts))
