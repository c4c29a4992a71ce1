"""The command ``mgraph``: small, so that Ctrl-C ends it quietly even while the rest is being imported."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, MutableMapping, Sequence
from types import FrameType
from typing import NoReturn

FAILED = 1
INTERRUPTED = 130  # the code that a shell reports for a program ended by SIGINT
TOGETHER = 0, 143
"""Exit codes with which all processes of a training end together: it is done, or one process got SIGTERM."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mgraph COMMAND [options]`` and return its exit code."""
    try:
        return _loaded()(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


def process() -> int:
    """Run ``main`` in a process that ends right after it. The garbage collector then skips all objects left,
    and if this process ends alone, JAX does not wait for the other processes of a training."""
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


class _ClosedOutput(io.TextIOBase):
    """In place of a closed standard output, for which Python has None, and discards what is printed."""

    def write(self, text: str, /) -> int:
        if text:
            raise _closed()
        return 0

    @property
    def buffer(self) -> NoReturn:
        raise _closed()

    def fileno(self) -> int:
        return 1


def _closed() -> OSError:
    return OSError(errno.EBADF, "it is closed", "standard output")


def _fill_closed_streams() -> None:
    """Open the null device in place of closed standard streams (``2>&-``): a file opened later would get the
    number of such a stream, and C code would print into it. Messages for a closed standard error are
    discarded; printing to a closed standard output is an error."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        if number == 1:
            sys.stdout = _ClosedOutput()
        if number == 2:
            sys.stderr = os.fdopen(number, "w", closefd=False)
    os.close(number)


def hide_false_errors(version: str, environment: MutableMapping[str, str]) -> None:
    """Keep jaxlib 0.10 from printing kilobytes of errors whenever it reads a program from a cache: it reports
    that the processor lacks ``prefer-no-gather``, a feature that none has. Call this before JAX is loaded."""
    if version.startswith("0.10."):
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _loaded() -> Callable[[Sequence[str] | None], int]:
    """The function that runs commands.

    While it is imported, an interrupt ends the process immediately: numpy's C interface would turn an
    exception raised while it is loaded into an ImportError, with a page of advice.
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
