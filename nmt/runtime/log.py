"""The log of the command line: Marian's time stamps on stderr and in a file.

The library itself only writes to the loggers ``mgraph``, ``layers`` and ``nmt``; nothing is
installed on import.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

ROOMS = ("mgraph", "layers", "nmt")
VALID = "nmt.valid"
"""The logger of the lines that go to ``--valid-log``, too."""
LEVELS = {
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "err": logging.ERROR,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": logging.CRITICAL + 10,
}


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = "[warn] " if record.levelno >= logging.WARNING else ""
        return f"[{self.formatTime(record, '%Y-%m-%d %H:%M:%S')}] {mark}{record.getMessage()}"


@contextmanager
def logging_as(values: Mapping[str, Any]) -> Iterator[None]:
    """Log as ``--quiet``, ``--log``, ``--valid-log``, ``--log-level`` and ``--log-time-zone`` say, for a
    while."""
    if values["log_time_zone"]:
        os.environ["TZ"] = values["log_time_zone"]
        time.tzset()
    handlers: list[logging.Handler] = [] if values["quiet"] else [logging.StreamHandler()]
    if values["log"]:
        handlers.append(logging.FileHandler(values["log"], encoding="utf-8", errors="surrogateescape"))
    handlers = handlers or [logging.NullHandler()]
    loggers = [logging.getLogger(room) for room in ROOMS]
    places = [(logger, handler) for logger in loggers for handler in handlers]
    if values.get("valid_log"):
        valid = logging.FileHandler(values["valid_log"], encoding="utf-8", errors="surrogateescape")
        places.append((logging.getLogger(VALID), valid))
    for logger, handler in places:
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
    for logger in loggers:
        logger.setLevel(LEVELS[values["log_level"]])
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
        for logger, handler in places:
            logger.removeHandler(handler)
            handler.close()
