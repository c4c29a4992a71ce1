"""mgraph's log, on the terminal and in files. ``create_loggers`` installs handlers; an import does not."""

from __future__ import annotations

import logging
import os
import sys
from typing import NamedTuple

from .errors import ArgumentError
from .files.paths import path_text

GENERAL = "mgraph"
VALID = "mgraph.valid"
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
"""Marian's level names."""

Path = str | os.PathLike[str]


class Loggers(NamedTuple):
    """What ``create_loggers`` has set up."""

    general: logging.Logger
    """``mgraph``: which programs are compiled, and what ``debug`` prints."""
    valid: logging.Logger
    """``mgraph.valid``, for the lines of a validation, which are also in the general log."""


class _Handler(logging.Handler):
    """Passes records to a stream or a file; ``create_loggers`` replaces earlier handlers of this class."""

    def __init__(self, target: logging.Handler, mark: str) -> None:
        super().__init__()
        self.target = target
        target.setFormatter(logging.Formatter(f"[%(asctime)s] {mark}%(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        self.target.emit(record)

    def close(self) -> None:
        self.target.close()
        super().close()


def create_loggers(
    *, log: Path | None = None, valid_log: Path | None = None, log_level: str = "info", quiet: bool = False
) -> Loggers:
    """Write mgraph's log to stderr, unless ``quiet``, and to the file ``log``; lines start with the time.

    ``valid_log``: a file for the lines of the logger ``valid``. ``log_level``: the lowest severity to log,
    ``trace`` to ``off``. A second call replaces the handlers of the first. ``ArgumentError`` for an unknown
    level and for what is no path, ``OSError`` for a file that cannot be written. Source: Marian,
    ``createLoggers``.
    """
    if not isinstance(log_level, str) or log_level not in LEVELS:
        raise ArgumentError(f"expected a log_level of {', '.join(LEVELS)}, got {log_level!r}")
    handlers = [_Handler(logging.StreamHandler(sys.stderr), "")] if not quiet else []
    handlers += [_Handler(_file(log), "")] if log is not None else []
    valid_handlers = [_Handler(_file(valid_log), "[valid] ")] if valid_log is not None else []
    loggers = Loggers(logging.getLogger(GENERAL), logging.getLogger(VALID))
    for logger, made in zip(loggers, (handlers, valid_handlers), strict=True):
        for old in [h for h in logger.handlers if isinstance(h, _Handler)]:
            logger.removeHandler(old)
            old.close()
        for handler in made:
            logger.addHandler(handler)
    loggers.general.setLevel(LEVELS[log_level])
    return loggers


def _file(path: Path) -> logging.Handler:
    return logging.FileHandler(path_text(path), encoding="utf-8", errors="surrogateescape")
