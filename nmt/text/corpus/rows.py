"""The rows of a corpus in the order of an epoch."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from nmt.settings import OptionError, require_tempdir
from nmt.text.corpus.fields import Fields
from nmt.text.corpus.generator import MersenneTwister
from nmt.text.corpus.shuffling import shuffled
from nmt.text.corpus.text import ParallelText, Row

logger = logging.getLogger(__name__)

Numbered = tuple[int, Row]
"""A row and its number in the files, from 0."""


class Rows:
    """The rows of a text, in the order of the files or shuffled anew for each epoch.

    shuffle: whether they are shuffled. in_memory: keep the text in memory (``--shuffle-in-ram``) instead of
    shuffling by way of files in ``folder`` (``--tempdir``).
    """

    def __init__(
        self, text: ParallelText, *, shuffle: bool, in_memory: bool = False, folder: str = ""
    ) -> None:
        if shuffle and text.is_stream:
            raise OptionError(
                "--shuffle data: standard input and pipes cannot be shuffled; add --shuffle batches or none, "
                "or give --train-sets files"
            )
        if shuffle and not in_memory and folder:
            require_tempdir(folder)
        self._text, self.shuffled = text, shuffle
        self._in_memory, self._folder = in_memory, folder
        self._kept: list[Row] | None = None
        self._stream: Iterator[Row] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the text."""
        return self._text.paths

    @classmethod
    def from_options(
        cls, values: Mapping[str, Any], fields: Fields, stopped: Callable[[], bool] | None = None
    ) -> Rows:
        """The rows that the options of training describe. No file is opened."""
        return cls(
            ParallelText(fields.paths, stopped),
            shuffle=values["shuffle"] == "data",
            in_memory=values["shuffle_in_ram"],
            folder=values["tempdir"],
        )

    def sample(self, size: int) -> list[Numbered]:
        """Some rows in the order of the files: the first ``size``, or if they are shuffled, from
        everywhere."""
        size = min(size, sys.maxsize)  # more islice does not take
        if self.shuffled:
            step = max(1, self._text.size().rows // size)
            return list(islice(enumerate(self._text.rows()), 0, min(step * size, sys.maxsize), step))
        rows = self._text.rows()
        first = list(islice(rows, size))
        if self._text.is_stream:  # they cannot be read again
            self._kept, self._stream = first, rows
        return list(enumerate(first))

    def epoch(self, generator: MersenneTwister) -> Iterator[Numbered]:
        """The rows of the next epoch, in an order that ``generator`` draws now."""
        if not self.shuffled:
            return self._in_file_order()
        size = self._text.size()
        logger.info("[data] Shuffling data")
        order = generator.order(size.rows)
        if self._in_memory:
            if self._kept is None:
                self._kept = list(self._text.rows())
            kept = self._kept
            return ((number, kept[number]) for number in order.tolist())
        rows = shuffled(self._text.rows(), order, size, self._folder)
        return zip(map(int, order), rows, strict=True)

    def _in_file_order(self) -> Iterator[Numbered]:
        if self._stream is None:
            return enumerate(self._text.rows())
        kept, rows, self._kept, self._stream = self._kept or [], self._stream, None, None
        return enumerate(chain(kept, rows))
