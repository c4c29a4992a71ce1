"""The command ``mgraph``, so small that Ctrl-C ends it quietly also while everything else is being loaded."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, MutableMapping, Sequence
from types import FrameType

FAILED = 1
INTERRUPTED = 130  # what a shell reports for a program that SIGINT ended
TOGETHER = 0, 143
"""With these codes all processes of a training end: it is done, or one of them got SIGTERM."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mgraph COMMAND [options]`` and return its exit code."""
    try:
        return _loaded()(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


def process() -> int:
    """``main`` for a process that ends with it: the collector need not look at all that it leaves, and where
    it ends alone JAX need not wait for the other processes of a training."""
    _fill_closed_streams()
    try:
        code = main()
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = FAILED
    gc.freeze()
    devices = sys.modules.get("nmt.runtime.devices")
    if devices:
        devices.leave_processes(code, code in TOGETHER)
    return code


def _fill_closed_streams() -> None:
    """Let no file that is opened later take the number of a standard stream that is closed (``2>&-``): what C
    code prints there would end up in it. Messages for a closed standard error are discarded."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        if number == 2:
            sys.stderr = os.fdopen(number, "w", closefd=False)
    os.close(number)


def hide_false_errors(version: str, environment: MutableMapping[str, str]) -> None:
    """Keep jaxlib 0.10 from printing kilobytes of errors whenever it reads a program from a cache: it misses
    features there that no processor has, ``prefer-no-gather``. Call it before JAX is loaded."""
    if version.startswith("0.10."):
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _loaded() -> Callable[[Sequence[str] | None], int]:
    """What runs commands.

    An interrupt ends the process at once: numpy's C interface makes an exception that comes while it is
    loaded into an ImportError, with a page of advice.
    """
    ends = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and threading.current_thread() is threading.main_thread()
    )
    if ends:
        signal.signal(signal.SIGINT, _end)
    try:
        from jaxlib.version import __version__

        hide_false_errors(__version__, os.environ)
        from nmt.commands.dispatch import run
    except ImportError as error:
        from nmt.runtime.hidden_packages import note_hidden

        note_hidden(error)
        raise
    finally:
        if ends:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    return run


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
