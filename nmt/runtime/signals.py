"""Signals that end a command when its work is safe."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_signals(call: Callable[[], object], *numbers: signal.Signals) -> Iterator[None]:
    """Call this at each signal of these numbers, in the main thread, between two of its instructions. In
    another thread signals stay what they are, as Python allows no other.

    For an event loop give ``call_soon_threadsafe``, not ``loop.add_signal_handler``: that loses signals while
    the loop is behind with what other threads have done, as a full pipe to the loop has no room for a number.
    """
    if threading.current_thread() is not threading.main_thread():
        numbers = ()
    before = {number: signal.signal(number, lambda *_: call()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
