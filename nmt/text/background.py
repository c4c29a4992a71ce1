"""An iterator that runs ahead in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
POLL_SECONDS = 0.5  # how often a wait for an item asks whether to stop


class Stopped(Exception):
    """The items end here, because they were asked to."""


class Background(Generic[Item]):
    """The items of an iterator, which a thread prepares ahead.

    items: read in the thread, and closed there if it is a generator. ahead: how many are prepared at most
        before they are asked for. An exception in the thread is raised where the item would have been, but
        ``Stopped`` only ends the items.
    stopped: once it returns True, waiting for an item ends, and there are no more items.
    """

    def __init__(
        self, items: Iterator[Item], ahead: int = 16, stopped: Callable[[], bool] | None = None
    ) -> None:
        self._items = items
        self._asked_to_stop = stopped
        self._queue: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()
        self._room = threading.Semaphore(ahead)
        self._closed = False
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

    def close(self) -> None:
        """Stop the thread and wait for it; what it had prepared is dropped."""
        self._closed = self._ended = True
        self._room.release()
        self._thread.join()

    def _run(self) -> None:
        end: BaseException = StopIteration()
        try:
            while True:
                self._room.acquire()
                if self._closed:
                    break
                self._queue.put((next(self._items), None))
        except Stopped:
            pass
        except BaseException as caught:  # it belongs to who asks for the items
            end = caught
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
            self._queue.put((None, end))
