"""Progress of work on many items: a counter in one line on a terminal, or lines of the log."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def counting(
    logger: logging.Logger, what: str, count: int | None, *, quiet: bool = False
) -> Iterator[Callable[[str], None]]:
    """A function to call with a few words about each item that is done, of ``count`` items if known.

    If stderr is a terminal, each call overwrites one line there, unless ``quiet``; otherwise the words are
    logged.
    """
    if quiet or not sys.stderr.isatty():
        yield logger.info
        return
    start, done = time.monotonic(), 0
    total = "" if count is None else f" of {count}"

    def step(words: str) -> None:
        nonlocal done
        done += 1
        line = f"{done}{total} {what}, {time.monotonic() - start:.0f} s; {words}"
        _write_over(line[: shutil.get_terminal_size().columns - 1])

    try:
        yield step
    finally:
        _write_over("")


def _write_over(line: str) -> None:
    """Put ``line`` in place of the line that the cursor is in. If the terminal is gone, do nothing: that must
    not end the work."""
    with suppress(OSError):
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
