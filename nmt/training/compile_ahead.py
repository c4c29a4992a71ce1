"""Compiles the programs of upcoming batches in threads while earlier batches train."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from mgraph import callers_settings
from nmt.text.batches import Batch


class CompileAhead:
    """Compiles the programs of an update for each new batch shape, several at the same time.

    XLA keeps little more than one core busy with a program, and training waits for the first programs.

    prepare: compiles the programs that a batch needs. If that fails, training fails in the same way when it
    reaches the batch, so the error is raised there. threads: how many programs to compile at the same time.
    """

    def __init__(self, prepare: Callable[[Batch], None], threads: int) -> None:
        self._prepare, self._settings = prepare, callers_settings()
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="mgraph-compile")
        self._begun: set[Hashable] = set()

    def announce(self, batch: Batch) -> None:
        """Start to compile the programs of an upcoming batch, unless its shape is known."""
        shape = batch.shape, batch.packed
        if shape not in self._begun:
            self._begun.add(shape)
            self._workers.submit(self._compile, batch)

    def close(self) -> None:
        """Wait for running compilations, and drop those that have not started."""
        self._workers.shutdown(cancel_futures=True)

    def _compile(self, batch: Batch) -> None:
        with self._settings():
            self._prepare(batch)
