"""Where figures of training go besides the log: a file of JSON lines, TensorBoard events, a progress bar."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol

from nmt.options import OptionError, require_folder, require_writable

Figures = Mapping[str, float | int | str]


class Report(Protocol):
    """Takes figures as they come."""

    def add(self, kind: str, update: int, figures: Figures) -> None:
        """``kind`` is ``train`` or ``valid``; ``update`` counts from 1."""

    def close(self) -> None:
        """Write what is left."""


class JsonLines:
    """A file with one JSON object a line (``--log-json``), appended to when training is resumed.

    Figures that are infinite or not a number, which JSON lacks, are null.
    """

    def __init__(self, path: str) -> None:
        self._stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()

    def add(self, kind: str, update: int, figures: Figures) -> None:
        known = {name: value if _is_known(value) else None for name, value in figures.items()}
        self._stream.write(json.dumps({"kind": kind, "update": update, **known}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


def _is_known(value: float | int | str) -> bool:
    """JSON has no infinity, and no NaN."""
    return not isinstance(value, float) or math.isfinite(value)


class TensorBoard:
    """Event files that TensorBoard shows (``--tensorboard``); needs the package tensorboardX."""

    def __init__(self, folder: str) -> None:
        self._writer = package("tensorboardX", "tensorboard").SummaryWriter(folder)

    def add(self, kind: str, update: int, figures: Figures) -> None:
        for name, value in figures.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(f"{kind}/{name}", value, update)

    def close(self) -> None:
        self._writer.close()


class ProgressBar:
    """Updates so far on stderr (``--progress``); needs the package tqdm.

    total: updates after which training ends; None if other things end it.
    """

    def __init__(self, total: int | None, done: int) -> None:
        self._bar = package("tqdm", "progress").tqdm(
            total=total, initial=done, unit="update", file=sys.stderr
        )

    def add(self, kind: str, update: int, figures: Figures) -> None:
        if kind == "train":
            self._bar.update(update - self._bar.n)

    def close(self) -> None:
        self._bar.close()


def package(name: str, option: str) -> Any:
    """The module that an option needs, which is also the name of mgraph's extra; OptionError if it is not
    installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise OptionError(f"--{option} needs the package {name}: pip install 'mgraph[{option}]'") from None


def check_reports(values: Mapping[str, Any]) -> None:
    """OptionError or OSError if a report that the options ask for cannot be made."""
    require_writable("--log-json", values["log_json"])
    if values["tensorboard"]:
        require_folder("--tensorboard", values["tensorboard"])
        package("tensorboardX", "tensorboard")
    if values["progress"]:
        package("tqdm", "progress")


class Reports:
    """All reports that the options ask for; closes them when it is left."""

    def __init__(self, values: Mapping[str, Any], total: int | None, done: int) -> None:
        self._stack = ExitStack()
        self._reports: list[Report] = []
        try:
            if values["log_json"]:
                self._open(JsonLines(values["log_json"]))
            if values["tensorboard"]:
                self._open(TensorBoard(values["tensorboard"]))
            if values["progress"]:
                self._open(ProgressBar(total, done))
        except BaseException:
            self._stack.close()
            raise

    def _open(self, report: Report) -> None:
        self._reports.append(report)
        self._stack.callback(report.close)

    def add(self, kind: str, update: int, figures: Figures) -> None:
        """Hand figures on to each report."""
        for report in self._reports:
            report.add(kind, update, figures)

    def __enter__(self) -> Reports:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
