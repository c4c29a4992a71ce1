"""Signals that end a command when its work is safe."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_signals(call: Callable[[], object], *numbers: signal.Signals) -> Iterator[None]:
    """Call ``call`` at each of these signals, in the main thread, between two of its instructions. In any
    other thread this does nothing, because Python lets only the main thread set signal handlers.

    For an event loop pass ``call_soon_threadsafe`` instead of using ``loop.add_signal_handler``, which loses
    signals while the loop is behind with calls from other threads: a full pipe to the loop has no room for a
    signal's number.
    """
    if threading.current_thread() is not threading.main_thread():
        numbers = ()
    before = {number: signal.signal(number, lambda *_: call()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
