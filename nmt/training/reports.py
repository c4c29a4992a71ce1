"""Training reports besides the log: a file of JSON lines, TensorBoard events, a progress bar."""

from __future__ import annotations

import importlib
import json
import logging
import math
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from typing import Any, Protocol, TextIO

from nmt.runtime.log import ROOMS
from nmt.settings import OptionError, require_folder, require_writable
from nmt.settings.training import Extras

logger = logging.getLogger(__name__)

LINE_SECONDS = 10.0
"""The interval between progress lines if stderr is not a terminal."""

START = '{"kind": '
"""How each line of ``--log-json`` begins."""
MOST_BYTES = 1 << 16
"""More than such a line has."""

Figures = Mapping[str, float | int | str]


class UpdateReport(Protocol):
    """Receives the figures of training."""

    def add(self, kind: str, update: int, figures: Figures) -> None:
        """Report figures. ``kind`` is ``train`` or ``valid``; ``update`` counts from 1."""

    def close(self) -> None:
        """Flush and close."""


class JsonLines:
    """A file with one JSON object per line (``--log-json``), appended to when training resumes.

    Infinity and NaN, which JSON lacks, become null. A last line that a power loss or a full disk has
    torn is cut off first.
    """

    def __init__(self, path: str) -> None:
        _cut_torn_line(path)
        self._stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()

    def add(self, kind: str, update: int, figures: Figures) -> None:
        known = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in figures.items()
        }
        self._stream.write(json.dumps({"kind": kind, "update": update, **known}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        with suppress(OSError):  # from text that could not be written
            self._stream.close()

    def __str__(self) -> str:
        return f"--log-json {self._stream.name}"


def is_torn(line: str) -> bool:
    """Whether a line was to become one of ``JsonLines``, but lacks its end."""
    return not line.endswith("\n") and line[: len(START)] == START[: len(line)]


def _cut_torn_line(path: str) -> None:
    if not os.path.isfile(path):
        return
    with open(path, "rb+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
        last = file.read().rpartition(b"\n")[2]
        if is_torn(last.decode("utf-8", "replace")):  # else it may be another file, named by mistake
            file.seek(-len(last), os.SEEK_END)
            file.truncate()


class TensorBoard:
    """TensorBoard event files (``--tensorboard``); needs the package tensorboardX."""

    def __init__(self, folder: str) -> None:
        self._writer, self._folder = package("tensorboardX", "tensorboard").SummaryWriter(folder), folder

    def add(self, kind: str, update: int, figures: Figures) -> None:
        for name, value in figures.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(f"{kind}/{name}", value, update)

    def close(self) -> None:
        self._writer.close()

    def __str__(self) -> str:
        return f"--tensorboard {self._folder}"


class ProgressBar:
    """A progress bar on stderr (``--progress``); needs the package tqdm. On a terminal, log lines are printed
    above the bar; elsewhere it becomes a line every ``LINE_SECONDS``.

    total: the number of updates in training; None if unknown.
    """

    def __init__(self, total: int | None, done: int) -> None:
        tqdm = package("tqdm", "progress").tqdm
        self._stack = ExitStack()
        if sys.stderr.isatty():
            from tqdm.contrib.logging import logging_redirect_tqdm

            bar = tqdm(total=total, initial=done, unit="update", file=sys.stderr)
            self._stack.enter_context(logging_redirect_tqdm(_shown_beside()))
        else:
            lines: Any = _Lines(sys.stderr)
            bar = tqdm(total=total, initial=done, unit="update", file=lines, mininterval=LINE_SECONDS)
        self._bar = self._stack.enter_context(bar)

    def add(self, kind: str, update: int, figures: Figures) -> None:
        if kind == "train":
            self.move(update)

    def move(self, update: int) -> None:
        """Show that this update is done."""
        self._bar.update(update - self._bar.n)

    def close(self) -> None:
        self._stack.close()


class _Lines:
    """A file that turns each progress bar into a line of a stream. Lines that cannot be written, because a
    pipe is closed or a disk full, are lost: they must not end training."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        if text.strip():
            with suppress(OSError):
                self._stream.write(text.strip() + "\n")

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _shown_beside() -> list[logging.Logger]:
    """The loggers that write to stderr, where the bar is."""
    loggers = [logging.getLogger(name) for name in ("", *ROOMS)]
    return [
        logger
        for logger in loggers
        if any(isinstance(h, logging.StreamHandler) and h.stream is sys.stderr for h in logger.handlers)
    ]


def package(name: str, option: str) -> Any:
    """The module that an option needs; OptionError, naming mgraph's extra, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise OptionError(
            f"--{option} needs the package {name}: pip install 'mgraph-jax[{option}]'"
        ) from None


def check_reports(options: Extras) -> None:
    """OptionError or OSError if a report that the options ask for cannot be created."""
    require_writable("--log-json", options.log_json)
    if options.tensorboard:
        require_folder("--tensorboard", options.tensorboard)
        package("tensorboardX", "tensorboard")
    if options.progress:
        package("tqdm", "progress")


class Reports(ExitStack):
    """All reports that the options ask for; a context manager that closes them."""

    def __init__(self, options: Extras, total: int | None, done: int) -> None:
        super().__init__()
        self._reports: list[UpdateReport] = []
        with ExitStack() as opened:  # closes the others if one cannot be opened
            if options.log_json:
                self._reports.append(opened.enter_context(closing(JsonLines(options.log_json))))
            if options.tensorboard:
                self._reports.append(opened.enter_context(closing(TensorBoard(options.tensorboard))))
            if options.progress:
                self._reports.append(opened.enter_context(closing(ProgressBar(total, done))))
            self.push(opened.pop_all())

    def add(self, kind: str, update: int, figures: Figures) -> None:
        """Pass figures to each report. A report that cannot be written gets no more, which is logged."""
        for report in [*self._reports]:
            try:
                report.add(kind, update, figures)
            except OSError as error:
                self._reports.remove(report)
                logger.warning("[training] %s: %s; it gets no more figures", report, error.strerror or error)

    def updated(self, update: int) -> None:
        """Move the progress bar to this update; figures come only at some updates (``--disp-freq``)."""
        for report in self._reports:
            if isinstance(report, ProgressBar):
                report.move(update)
