"""Translation by real Marian, a peer: ``pymarian decode`` in separate processes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.measuring import ProcessError, finished, lines_of
from benchmarks.training.models import command_line

SPEED = re.compile(r"Processed \d+ batches, \d+ lines, \d+ source tokens in ([\d.]+)s - Speed \(total\)")
"""What ``--stat-freq`` says at the end: seconds from the first batch on, loading not counted."""


@dataclass(frozen=True)
class PymarianDecoder:
    """A model as Marian decodes with it.

    executable: ``pymarian``. options: those of ``marian decode`` by attribute name: models, vocabularies and
    the like, for all calls.
    """

    executable: str
    options: Mapping[str, Any]

    def command(self, source: Path, **options: Any) -> list[str]:
        """The command that translates a file."""
        given = {**self.options, "input": source, **options}
        return [self.executable, "decode", *command_line(given)]

    def decode(self, lines: Sequence[str], batch: int, **options: Any) -> tuple[float, list[str]]:
        """Seconds of translating, start-up not counted, and the translations.

        Batches are of sentences of similar length; all lines are sorted together. ProcessError if it fails.
        """
        with tempfile.TemporaryDirectory() as folder:
            source, target = _written(lines, folder), Path(folder, "target")
            sorting = {"mini_batch": batch, "maxi_batch": -(-len(lines) // batch), "maxi_batch_sort": "src"}
            given = {**sorting, "output": target, "stat_freq": "1000000u", **options}
            done = finished(self.command(source, **given))
            speed = SPEED.search("\n".join(line for _, line in done.lines))
            if speed is None:
                raise ProcessError(f"{self.executable} decode does not say how long it took")
            return float(speed[1]), lines_of(target)

    def latencies(self, lines: Sequence[str], **options: Any) -> list[float]:
        """Seconds of each line by itself, with one thread, except the first: the time between lines that
        Marian prints."""
        with tempfile.TemporaryDirectory() as folder:
            given = {"mini_batch": 1, "maxi_batch": 1, "cpu_threads": 1, "log_level": "error", **options}
            printed = finished(self.command(_written(lines, folder), **given))
        times = [seconds for seconds, _ in printed.lines]
        if len(times) != len(lines):
            raise ProcessError(f"{self.executable} decode: expected {len(lines)} lines, got {len(times)}")
        return [after - before for before, after in pairwise(times)]


def _written(lines: Sequence[str], folder: str) -> Path:
    path = Path(folder, "source")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
