"""A text in any order, without keeping it in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO

import numpy as np

from nmt.text.corpus.errors import CorpusError
from nmt.text.corpus.text import Row, TextSize

BUCKET_BYTES = 1 << 24
MOST_BUCKETS = 250  # files that are open at a time


def shuffled(
    rows: Iterator[Row], order: np.ndarray, size: TextSize, folder: str, *, bucket_bytes: int = BUCKET_BYTES
) -> Iterator[Row]:
    """The rows in ``order``: first row ``order[0]``, then row ``order[1]``, and so on.

    In two passes: each row goes to the file of the stretch of the new order that it falls into; then one
    file after the other is read and put into order in memory. So there is one of them in memory at a time,
    of some ``bucket_bytes`` (or a 250th of the text, if that is more), and four bytes for each row.

    rows: all rows in the order of the file. order: uint32 ``[rows]``, each number once.
    size: of the text. folder: where the files are made (``--tempdir``; empty for the usual place); they have
        no names, so that none is left behind whatever happens.

    OSError if there is no room. CorpusError if the text has not ``size.rows`` rows any more.
    """
    buckets = min(MOST_BUCKETS, size.rows, 1 + size.bytes // bucket_bytes)
    stretch = -(-size.rows // buckets)
    with ExitStack() as stack:
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
            # The file holds its rows as they came, so the first of them has the lowest number.
            places = np.empty(len(part), np.int64)
            places[np.argsort(part)] = np.arange(0, width * len(part), width)
            for place in places.tolist():
                yield tuple(lines[place : place + width])


def _deal(rows: Iterator[Row], order: np.ndarray, stretch: int, files: Sequence[IO[bytes]]) -> int:
    """Write each row to the file of its stretch of the order; returns how many lines a row has."""
    bucket_of = np.empty(len(order), np.uint8)
    bucket_of[order] = np.arange(len(order)) // stretch
    writers = [file.write for file in files]
    dealt, width = 0, 1
    for bucket, row in zip(bucket_of.tobytes(), rows, strict=False):
        writers[bucket](b"\n".join(row) + b"\n")
        dealt += 1
        width = len(row)
    if dealt < len(order) or next(rows, None) is not None:
        raise CorpusError(
            f"the training text had {len(order)} lines when it was counted, and has others now: "
            "it must not change during training"
        )
    return width
