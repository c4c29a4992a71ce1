"""Whole jobs: processes from their start to their end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.decoding.models import Task
from benchmarks.decoding.rows import (
    CTRANSLATE2,
    MARIAN,
    OURS,
    Measuring,
    attempted,
    chosen,
    ctranslate2,
    job_options,
    leave_out,
    marian,
    normalization,
    our_command,
    same,
    write_lines,
)
from benchmarks.measuring import Samples, Table, alternate, finished, lines_of
from benchmarks.training.models import NO_CACHE

EMPTY, WARM = "cache empty", "cache warm"


def compare_jobs(task: Task, measuring: Measuring) -> None:
    """Print a table for each number of lines and each beam."""
    for number in measuring.lines:
        if number > len(task.lines):
            print(f"\njobs of {number:,} lines: left out: the text has {len(task.lines):,}")
            continue
        lines = [task.typical] if number == 1 else task.lines[:number]
        for beam in measuring.beams:
            with tempfile.TemporaryDirectory() as folder:
                _Jobs(task, measuring, lines, beam, Path(folder)).compare()


class _Jobs:
    """The same lines and beam, for all programs."""

    def __init__(
        self, task: Task, measuring: Measuring, lines: Sequence[str], beam: int, folder: Path
    ) -> None:
        self._task, self._measuring, self._lines, self._beam = task, measuring, lines, beam
        self._folder = folder
        self._source = write_lines(folder / "source", lines)
        self._peaks: dict[str, int] = {}
        self._made: dict[str, list[str]] = {}

    def compare(self) -> None:
        """Print the table."""
        measuring = self._measuring
        candidates: dict[str, Callable[[], float]] = {}
        for precision in measuring.precisions:
            candidates |= self._ours(precision)
            if measuring.programs.pymarian:
                candidates |= self._marian(precision)
            if measuring.programs.ctranslate2_python:
                name = f"{CTRANSLATE2} {precision}"
                attempted(candidates, name, partial(self._ctranslate2, precision))
        taken = alternate(candidates, measuring.rounds, warm_up=0, left_out=leave_out)
        count = len(self._lines)
        print(f"\n{self._task.name}: a job of {count:,} line{'s'[: count > 1]}, beam {self._beam}\n")
        table = Table(["job", "seconds", "lines/s", "warm is faster", "empty is faster", "MiB", "same"])
        for name in chosen(taken, measuring.precisions):
            self._row(table, name, taken)

    def _row(self, table: Table, name: str, taken: dict[str, Samples]) -> None:
        who, precision, *_ = name.replace(",", "").split()
        own = [f"{OURS} {precision}, {cache}" for cache in (WARM, EMPTY)]
        ratios = [taken[name].over(taken[row]) if who != OURS and row in taken else "" for row in own]
        expected = next((self._made[row] for row in self._made if row.startswith(OURS)), None)
        mebibytes = round(self._peaks[name] / 2**20)
        seconds = taken[name]
        equal = same(self._made.get(name), expected)
        table.row(name, seconds, seconds.rates(len(self._lines)), *ratios, mebibytes, equal)

    def _ours(self, precision: str) -> dict[str, Callable[[], float]]:
        cache = self._folder / f"cache.{precision}"
        options = job_options(self._measuring, self._beam)
        target = self._target()

        def run(name: str) -> float:
            if name.endswith(EMPTY):
                shutil.rmtree(cache, ignore_errors=True)
            paths: dict[str, Any] = {"input": self._source, "output": target, "compilation_cache": cache}
            command = our_command(
                self._task, self._measuring, precision, quiet_translation=True, **options, **paths
            )
            return self._seconds(name, command, target)

        names = [f"{OURS} {precision}, {state}" for state in (EMPTY, WARM)]
        return {name: partial(run, name) for name in names}

    def _marian(self, precision: str) -> dict[str, Callable[[], float]]:
        name, target = f"{MARIAN} {precision}", self._target()
        command = marian(self._task, self._measuring, precision).command(
            self._source,
            output=target,
            quiet_translation=True,
            **job_options(self._measuring, self._beam),
        )
        return {name: partial(self._seconds, name, command, target)}

    def _ctranslate2(self, precision: str) -> dict[str, Callable[[], float]]:
        measuring, target = self._measuring, self._target()
        options: dict[str, Any] = {
            "batch": measuring.mini_batch,
            "beam": self._beam,
            "normalize": normalization(self._beam),
        }
        peers = ctranslate2(self._task, measuring, precision)
        return {
            name: partial(self._seconds, name, peer.job(self._source, target, **options), target)
            for name, peer in peers.items()
        }

    def _target(self) -> Path:
        return self._folder / "target"

    def _seconds(self, name: str, command: Sequence[str], target: Path) -> float:
        """Run a job; its output and its peak memory are kept."""
        target.unlink(missing_ok=True)
        done = finished(command, environment=NO_CACHE)
        self._peaks[name] = max(done.peak, self._peaks.get(name, 0))
        self._made[name] = lines_of(target)
        return done.seconds
