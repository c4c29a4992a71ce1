"""An iterator that runs ahead in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
POLL_SECONDS = 0.5  # how often a wait for an item asks whether to stop


class Stopped(Exception):
    """The items end here, because they were asked to."""


class _End:
    """What the thread says last: that it is done, or why it could not go on."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


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
        self._queue: queue.Queue[Item | _End] = queue.Queue()
        self._room = threading.Semaphore(ahead)
        self._stopped = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="mgraph-corpus", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        if self._ended:
            raise StopIteration
        item = self._get()
        if not isinstance(item, _End):
            self._room.release()
            return item
        self._ended = True
        if item.error is not None:
            raise item.error
        raise StopIteration

    def _get(self) -> Item | _End:
        while True:
            try:
                return self._queue.get(timeout=POLL_SECONDS if self._asked_to_stop else None)
            except queue.Empty:
                if self._asked_to_stop and self._asked_to_stop():
                    return _End()

    def close(self) -> None:
        """Stop the thread and wait for it; what it had prepared is dropped."""
        self._stopped = self._ended = True
        self._room.release()
        self._thread.join()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while True:
                self._room.acquire()
                if self._stopped:
                    break
                self._queue.put(next(self._items))
        except (StopIteration, Stopped):
            pass
        except BaseException as caught:  # it belongs to who asks for the items
            error = caught
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
            self._queue.put(_End(error))
