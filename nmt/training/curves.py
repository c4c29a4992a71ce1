"""Training curves, read from a file of ``--log-json`` and drawn."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from mgraph import MGraphError
from mgraph.files.paths import path_text
from nmt.runtime.compared import Compared
from nmt.runtime.plots import COLORS, plotting
from nmt.training.reports import is_torn

_LABELS = {
    "cost": "cost (--cost-type)",
    "gradient_norm": "norm of the gradient",
    "learn_rate": "learning rate",
    "words_per_second": "words per second",
    "bleu": "BLEU",
    "bleu-detok": "BLEU",
    "bleu-segmented": "BLEU of pieces",
    "chrf": "chrF",
    "perplexity": "perplexity of a word",
    "ce-mean-words": "cross entropy of a word",
    "ce-mean": "cross entropy of a sentence",
    "cross-entropy": "cross entropy of a sentence",
}


class CurvesError(MGraphError, ValueError):
    """A file is not a log of figures, lacks a figure, or cannot be drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve(Compared):
    """One figure over the updates.

    name: ``cost``, ``learn_rate``, ...; if ``kind`` is ``valid``, the name of the metric.
    kind: ``train`` or ``valid``.
    updates, values: of equal length; a value that is not a number is NaN.
    """

    name: str
    kind: str
    updates: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, slots=True)
class Curves:
    """The figures of one training (``mgraph train --log-json``).

    If training was resumed from an earlier update, the previous run's figures from there on are left out, and
    so is a last line that is not complete: of a training that goes on or was killed.
    """

    curves: tuple[Curve, ...]

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Curves:
        """The figures in a file of ``--log-json``; CurvesError, with the line, for any other file, and
        ArgumentError for anything but a path."""
        points: dict[tuple[str, str], dict[int, float]] = {}
        last: dict[str, int] = {}
        latest = -1
        path = path_text(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                try:
                    kind, update, figures = _record(line, f"{path}, line {number}")
                except CurvesError:
                    if is_torn(line):  # so it is the last one
                        break
                    raise
                if update < latest or update <= last.get(kind, -1):  # resumed
                    last = {}
                    for known in points.values():
                        for later in [u for u in known if u >= update]:
                            del known[later]
                last[kind] = latest = update
                for name, value in figures.items():
                    points.setdefault((kind, name), {})[update] = value
        made = [
            Curve(name, kind, np.array([*known], np.int64), np.array([*known.values()], np.float64))
            for (kind, name), known in points.items()
        ]
        if not made:
            raise CurvesError(f"{path} has no figures")
        return Curves(tuple(made))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all figures."""
        return tuple(dict.fromkeys(curve.name for curve in self.curves))

    def plot(self, names: Sequence[str] = (), *, title: str = "Training", dark: bool = False) -> Any:
        """Draw figures over updates, one below the other; returns matplotlib's figure.

        names: of the figures to draw; if empty the cost, the learning rate, and all metrics of validation.
        dark: on a dark background.
        CurvesError for an unknown name, without a figure to draw, or if matplotlib (the extra ``plot``) is
        not installed.
        """
        if not isinstance(names, Iterable) or isinstance(names, str):
            raise CurvesError(f"names: expected a list of names of figures, got {names!r}")
        names = tuple(names)
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise CurvesError(f"there is no figure {unknown[0]!r}; there are {', '.join(self.names)}")
        chosen = [curve for curve in self.curves if (curve.name in names if names else _is_usual(curve))]
        if not chosen:
            there = f"; there are {', '.join(self.names)}" if self.names else ""
            raise CurvesError(f"no cost, learning rate or metric of validation to draw{there}")
        with plotting(dark, CurvesError) as pyplot:
            size = (7.0, 0.8 + 2.1 * len(chosen))
            figure, grid = pyplot.subplots(len(chosen), 1, sharex=True, squeeze=False, figsize=size)
            figure.suptitle(title)
            for curve, axes, color in zip(chosen, grid[:, 0], cycle(COLORS), strict=False):
                mark = "o" if curve.kind == "valid" or len(curve.updates) == 1 else ""
                axes.plot(curve.updates, curve.values, color=color, marker=mark, markersize=3.5)
                axes.set_title("validation" if curve.kind == "valid" else "training", loc="left", fontsize=9)
                axes.set_ylabel(_LABELS.get(curve.name, curve.name.replace("_", " ")))
                axes.grid(True, linewidth=0.6)
            grid[-1, 0].set_xlabel("updates")
        return figure


def _is_usual(curve: Curve) -> bool:
    return curve.kind == "valid" or curve.name in ("cost", "learn_rate")


def _record(line: str, where: str) -> tuple[str, int, Mapping[str, float]]:
    """Kind, update and figures of a line."""
    try:
        found = json.loads(line)
        kind, update = found.pop("kind"), found.pop("update")
        figures = {name: float("nan") if value is None else value for name, value in found.items()}
        if kind not in ("train", "valid") or type(update) is not int or abs(update) >= 2**63:
            raise ValueError
    except (ValueError, KeyError, AttributeError, TypeError):
        raise CurvesError(f"{where}: expected a line of --log-json, got {line.strip()!r:.80}") from None
    return kind, update, {name: value for name, value in figures.items() if isinstance(value, int | float)}
