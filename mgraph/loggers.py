"""The log of mgraph on a terminal and in files. Importing mgraph installs no handlers; this does."""

from __future__ import annotations

import logging
import os
import sys
from typing import NamedTuple

from .errors import ArgumentError

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
"""Marian's names of the levels."""

Path = str | os.PathLike[str]


class Loggers(NamedTuple):
    """What ``create_loggers`` has set up."""

    general: logging.Logger
    """``mgraph``: what programs are compiled, and what ``debug`` prints."""
    valid: logging.Logger
    """``mgraph.valid``, for lines of a validation; they are in the general log, too."""


class _Handler(logging.Handler):
    """Passes records to a stream or a file; known by its class, so that a second call replaces it."""

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
    """Write the log of mgraph to stderr, unless ``quiet``, and to the file ``log``, each line after its time.

    ``valid_log``: a file for the lines of the logger ``valid``. ``log_level``: the least severity, ``trace``
    to ``off``. A second call replaces what the first has set up. ``ArgumentError`` for an unknown level,
    ``OSError`` for a file that cannot be written. Source: Marian, ``createLoggers``.
    """
    if log_level not in LEVELS:
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
    return logging.FileHandler(path, encoding="utf-8", errors="surrogateescape")
