"""An iterator that prefetches in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
POLL_SECONDS = 0.5  # how often a waiting consumer checks whether to stop


class Stopped(Exception):
    """Ends the items early, on request."""


class Background(Generic[Item]):
    """The items of an iterator, prefetched by a thread.

    items: read in the thread, and closed there if it is a generator. An exception is raised in place of the
        item; ``Stopped`` only ends the items.
    ahead: how many items to prefetch at most. stopped: once it returns True, the items end.
    """

    def __init__(
        self, items: Iterator[Item], ahead: int = 16, stopped: Callable[[], bool] | None = None
    ) -> None:
        self._items = items
        self._asked_to_stop = stopped
        self._queue: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()
        self._room = threading.Semaphore(ahead)
        self.closed = False
        """Whether nobody wants the items any more."""
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="mgraph-corpus", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        while not self._ended:
            try:
                item, error = self._queue.get(timeout=POLL_SECONDS if self._asked_to_stop else None)
            except queue.Empty:
                self._ended = self._asked_to_stop is not None and self._asked_to_stop()
                continue
            if error is None:
                self._room.release()
                found: Item = item
                return found
            self._ended = True
            raise error
        raise StopIteration

    @property
    def ready(self) -> bool:
        """Whether the next item, or the end, is available without waiting."""
        return self._ended or not self._queue.empty()

    def close(self) -> None:
        """Stop the thread, wait for it, and drop what it prefetched."""
        self.closed = self._ended = True
        self._room.release()
        self._thread.join()

    def _run(self) -> None:
        end: BaseException = StopIteration()
        try:
            while True:
                self._room.acquire()
                if self.closed:
                    break
                self._queue.put((next(self._items), None))
        except Stopped:
            pass
        except BaseException as caught:  # raised in the consumer's thread
            end = caught
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
            self._queue.put((None, end))
