"""Programs of batches that are due soon, compiled in threads while earlier batches train."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from mgraph import callers_settings
from nmt.text.batches import Batch


class CompileAhead:
    """Compiles the programs of an update for each new shape of batches, several at once.

    XLA keeps little more than one core busy with a program, and training waits for the first ones.

    prepare: compiles what a batch needs. If that fails, training fails in the same way once it comes to the
    batch, so the error is raised there. threads: programs at once.
    """

    def __init__(self, prepare: Callable[[Batch], None], threads: int) -> None:
        self._prepare, self._settings = prepare, callers_settings()
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="mgraph-compile")
        self._begun: set[Hashable] = set()

    def announce(self, batch: Batch) -> None:
        """Begin to compile for a batch that will come, unless its shape is known."""
        shape = batch.shape, batch.packed
        if shape not in self._begun:
            self._begun.add(shape)
            self._workers.submit(self._compile, batch)

    def close(self) -> None:
        """Wait for what is being compiled, and drop what has not begun."""
        self._workers.shutdown(cancel_futures=True)

    def _compile(self, batch: Batch) -> None:
        with self._settings():
            self._prepare(batch)
