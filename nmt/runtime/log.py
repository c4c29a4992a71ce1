"""The log of the command line: Marian's time stamps on stderr and in a file.

The library only writes to the loggers ``mgraph``, ``layers`` and ``nmt``; importing it installs no handlers.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mgraph.loggers import LEVELS
from nmt.runtime.failures import reason
from nmt.settings.requirements import require_writable
from nmt.settings.sections import Logging

ROOMS = ("mgraph", "layers", "nmt")
VALID = "nmt.valid"
"""The logger of lines that also go to ``--valid-log``."""

_MARKS = ((logging.CRITICAL, "Error: "), (logging.WARNING, "[warn] "))


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = next((mark for level, mark in _MARKS if record.levelno >= level), "")
        return f"[{self.formatTime(record, '%Y-%m-%d %H:%M:%S')}] {mark}{record.getMessage()}"


class _File(logging.FileHandler):
    """The log file of an option. If writing fails, as on a full disk, stderr says so once: a failing log must
    not end the work that it reports."""

    def __init__(self, option: str, path: str) -> None:
        super().__init__(path, encoding="utf-8", errors="surrogateescape")
        self._option, self._path, self._failed = option, path, False

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._failed:
            self._failed = True
            print(f"{self._option} {self._path}: {error.strerror}; lines will be missing", file=sys.stderr)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def logging_as(options: Logging, valid_log: str = "") -> Iterator[None]:
    """Apply ``--quiet``, ``--log``, ``--valid-log``, ``--log-level`` and ``--log-time-zone`` in a block.
    An error that ends the block is the last line of ``--log``, as in Marian's; the caller reports it on
    stderr. After the block the loggers have their previous levels. OSError, naming the option, for a file
    that cannot be written."""
    require_writable("--log", options.log)
    require_writable("--valid-log", valid_log)
    if options.log_time_zone:
        os.environ["TZ"] = options.log_time_zone
        time.tzset()
    handlers: list[logging.Handler] = [] if options.quiet else [logging.StreamHandler()]
    if options.log:
        handlers.append(_File("--log", options.log))
    handlers = handlers or [logging.NullHandler()]
    loggers = [logging.getLogger(room) for room in ROOMS]
    places = [(logger, handler) for logger in loggers for handler in handlers]
    if valid_log:
        places.append((logging.getLogger(VALID), _File("--valid-log", valid_log)))
    for logger, handler in places:
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(LEVELS[options.log_level])
    try:
        yield
    except BrokenPipeError:
        raise
    except Exception as error:
        if options.log and LEVELS[options.log_level] <= logging.CRITICAL:
            last = {"levelno": logging.CRITICAL, "msg": reason(error)}
            handlers[-1].handle(logging.makeLogRecord(last))
        raise
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
        for logger, handler in places:
            logger.removeHandler(handler)
            handler.close()
