"""Where figures of training go besides the log: a file of JSON lines, TensorBoard events, a progress bar."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol

from nmt.options import OptionError

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
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise OptionError(
                "--tensorboard needs the package tensorboardX: pip install 'mgraph[tensorboard]'"
            ) from None
        self._writer = SummaryWriter(folder)

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
        try:
            from tqdm import tqdm
        except ImportError:
            raise OptionError("--progress needs the package tqdm: pip install 'mgraph[progress]'") from None
        self._bar = tqdm(total=total, initial=done, unit="update", file=sys.stderr)

    def add(self, kind: str, update: int, figures: Figures) -> None:
        if kind == "train":
            self._bar.update(update - self._bar.n)

    def close(self) -> None:
        self._bar.close()


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
