"""Marian's training, run by the program ``pymarian`` in a separate process; its log says what it did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measuring import Finished, ProcessError, finished
from benchmarks.training.models import command_line

UPDATE = re.compile(r"Up\. (\d+) : .* after ([\d,]+) : Time ([\d.]+)s : ([\d.]+) words/s")


class Line(NamedTuple):
    """A line of the log for one update or several."""

    update: int
    words: int
    """Target words since the line before, ``</s>`` included."""
    seconds: float
    """Seconds since the line before."""


class Updates(NamedTuple):
    """Some updates of a training."""

    seconds: float
    words: int


def train(program: str, options: Mapping[str, Any], folder: Path, *, threads: int) -> Finished:
    """Train as ``options`` say, by attribute name, and save the model in ``folder``."""
    given = {**options, "model": folder / "model.npz", "cpu_threads": threads}
    return finished([program, "train", *command_line(given)])


def timed_updates(
    program: str, options: Mapping[str, Any], folder: Path, *, threads: int, skipped: int, updates: int
) -> Updates:
    """The ``updates`` updates after the ``skipped`` ones, in which Marian's threads map their memory.

    With several threads Marian makes some more, which were under way or waiting; they do not count.
    """
    given = {**options, "after_batches": skipped + updates, "disp_freq": "1u"}
    lines = read_log([line for _, line in train(program, given, folder, threads=threads).lines])
    if len(lines) < skipped + updates:
        raise ProcessError(f"{program}: expected {skipped + updates} updates in the log, got {len(lines)}")
    counted = lines[skipped : skipped + updates]
    return Updates(sum(line.seconds for line in counted), sum(line.words for line in counted))


def read_log(log: Sequence[str]) -> list[Line]:
    """The lines of a log that report updates.

    They give seconds with two digits only, words a second with more: seconds are computed from the latter.
    """
    found: list[Line] = []
    total = 0
    for line in log:
        match = UPDATE.search(line)
        if match:
            before, total = total, int(match[2].replace(",", ""))
            rate = float(match[4])
            seconds = (total - before) / rate if rate else float(match[3])
            found.append(Line(int(match[1]), total - before, seconds))
    return found
