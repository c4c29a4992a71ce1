"""The log of the command line: Marian's time stamps on stderr and in a file.

The library only writes to the loggers ``mgraph``, ``layers`` and ``nmt``; importing it installs no handlers.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mgraph.loggers import LEVELS
from nmt.settings.sections import Logging

ROOMS = ("mgraph", "layers", "nmt")
VALID = "nmt.valid"
"""The logger of lines that also go to ``--valid-log``."""


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = "[warn] " if record.levelno >= logging.WARNING else ""
        return f"[{self.formatTime(record, '%Y-%m-%d %H:%M:%S')}] {mark}{record.getMessage()}"


@contextmanager
def logging_as(options: Logging, valid_log: str = "") -> Iterator[None]:
    """Apply ``--quiet``, ``--log``, ``--valid-log``, ``--log-level`` and ``--log-time-zone`` in a block."""
    if options.log_time_zone:
        os.environ["TZ"] = options.log_time_zone
        time.tzset()
    handlers: list[logging.Handler] = [] if options.quiet else [logging.StreamHandler()]
    if options.log:
        handlers.append(logging.FileHandler(options.log, encoding="utf-8", errors="surrogateescape"))
    handlers = handlers or [logging.NullHandler()]
    loggers = [logging.getLogger(room) for room in ROOMS]
    places = [(logger, handler) for logger in loggers for handler in handlers]
    if valid_log:
        valid = logging.FileHandler(valid_log, encoding="utf-8", errors="surrogateescape")
        places.append((logging.getLogger(VALID), valid))
    for logger, handler in places:
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
    for logger in loggers:
        logger.setLevel(LEVELS[options.log_level])
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
        for logger, handler in places:
            logger.removeHandler(handler)
            handler.close()
