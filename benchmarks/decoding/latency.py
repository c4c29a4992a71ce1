"""Single lines: how long each takes, and how long a new process takes to its first one."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.decoding.calling import callers, prepared
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
    slower,
    write_lines,
)
from benchmarks.measuring import Finished, ProcessError, Samples, Table, alternate, finished
from benchmarks.training.models import NO_CACHE

JAX = "import jax"
LATE = 95
"""The percentile for slow lines."""


def compare_latency(task: Task, measuring: Measuring, folder: Path) -> None:
    """Print a table of single lines for each beam."""
    lines = task.lines[: measuring.latencies]
    with ExitStack() as stack:
        found = callers(task, measuring, folder / "cache", stack)
        for beam in measuring.beams:
            late: dict[str, list[float]] = {name: [] for name in found}

            def run(name: str, beam: int = beam, late: dict[str, list[float]] = late) -> float:
                seconds = found[name].latency(lines, beam)
                late[name].append(percentile(seconds, LATE))
                return statistics.median(seconds)

            ready = prepared(found, {name: partial(run, name) for name in found})
            for values in late.values():
                values.clear()
            taken = alternate(ready, measuring.rounds, warm_up=0, left_out=leave_out)
            print(f"\n{task.name}: {len(lines):,} lines, each by itself, beam {beam}\n")
            table = Table(["decoder", "median ms", f"{LATE} % ms", "ours is faster"])
            for name in chosen(taken, measuring.precisions):
                ends = Samples(tuple(late[name]))
                table.row(name, taken[name].times(1e3), ends.times(1e3), slower(name, taken))


def percentile(values: Sequence[float], percent: int) -> float:
    """The least value that this many per cent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def compare_first_lines(task: Task, measuring: Measuring) -> None:
    """Print the tables of new processes, for a single line and for the text of second calls."""
    for lines in ([task.typical], task.lines[: measuring.call_lines]):
        for beam in measuring.beams:
            with tempfile.TemporaryDirectory() as folder:
                _FirstLines(task, measuring, lines, beam, Path(folder)).compare()


class _FirstLines:
    """Processes of all programs, which translate the same lines."""

    def __init__(
        self, task: Task, measuring: Measuring, lines: Sequence[str], beam: int, folder: Path
    ) -> None:
        self._task, self._measuring, self._lines, self._beam = task, measuring, lines, beam
        self._folder = folder
        self._source = write_lines(folder / "source", lines)

    def compare(self) -> None:
        """Print the table."""
        measuring, count = self._measuring, len(self._lines)
        candidates: dict[str, Callable[[], float]] = {JAX: _import_jax}
        for precision in measuring.precisions:
            candidates |= self._ours(precision)
            if measuring.programs.pymarian:
                candidates[f"{MARIAN} {precision}"] = partial(self._marian, precision)
            if measuring.programs.ctranslate2_python and count == 1:
                attempted(candidates, f"{CTRANSLATE2} {precision}", partial(self._ctranslate2, precision))
        taken = alternate(candidates, measuring.rounds, warm_up=0, left_out=leave_out)
        job = f"a job of {count:,} line{'s'[: count > 1]}, beam {self._beam}"
        print(f"\n{self._task.name}: the first translated line of {job}\n")
        table = Table(["process", "seconds", "beyond import jax"])
        for name in chosen(taken, measuring.precisions):
            own = name.startswith(OURS)
            table.row(name, taken[name], taken[name].minus(taken[JAX]) if own else "")

    def _ours(self, precision: str) -> dict[str, Callable[[], float]]:
        cache = self._folder / f"cache.{precision}"
        options = job_options(self._measuring, self._beam)

        def run(empty: bool) -> float:
            if empty:
                shutil.rmtree(cache, ignore_errors=True)
            paths: dict[str, Any] = {"input": self._source, "compilation_cache": cache}
            command = our_command(self._task, self._measuring, precision, quiet=True, **options, **paths)
            return first_line(finished(command, environment=NO_CACHE), len(self._lines))

        return {
            f"{OURS} {precision}, cache {'empty' if empty else 'warm'}": partial(run, empty)
            for empty in (True, False)
        }

    def _marian(self, precision: str) -> float:
        options = job_options(self._measuring, self._beam)
        peer = marian(self._task, self._measuring, precision)
        command = peer.command(self._source, log_level="error", **options)
        return first_line(finished(command), len(self._lines))

    def _ctranslate2(self, precision: str) -> dict[str, Callable[[], float]]:
        """Processes for one line: their whole time."""
        target = self._folder / "target"
        options: dict[str, Any] = {"batch": 1, "beam": self._beam, "normalize": normalization(self._beam)}
        peers = ctranslate2(self._task, self._measuring, precision)
        commands = {name: peer.job(self._source, target, **options) for name, peer in peers.items()}
        return {name: partial(_whole, command) for name, command in commands.items()}


def first_line(done: Finished, lines: int) -> float:
    """Seconds from the start of a process to the first of the lines that it printed last."""
    if len(done.lines) < lines:
        raise ProcessError(f"expected {lines} lines, got {len(done.lines)}")
    return done.lines[-lines][0]


def _whole(command: Sequence[str]) -> float:
    return finished(command).seconds


def _import_jax() -> float:
    return _whole([sys.executable, "-c", JAX])
