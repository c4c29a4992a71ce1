"""What a job compiles, how much of its work is idle or padding, and how much memory it needs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.decoding.latency import first_line
from benchmarks.decoding.models import Task
from benchmarks.decoding.reporting import MARK
from benchmarks.decoding.rows import OURS, Measuring, job_options, leave_out, our_command, write_lines
from benchmarks.measuring import Finished, ProcessError, Table, finished
from benchmarks.training.models import NO_CACHE

COLUMNS = {
    "compiled": "compiled",
    "from cache": "read",
    "tracing s": "tracing",
    "compiling s": "compiling",
    "rows idle, %": "idle",
    "encoded padding, %": "padding",
}
"""Headings, and what they show of ``benchmarks.decoding.reporting.report``."""


def report_programs(task: Task, measuring: Measuring) -> None:
    """Print a table for each beam: the text of second calls, as a job with an empty and with a warm cache.

    "rows idle": the share of the steps of a lane's rows that had no sentence. "encoded padding": the share of
    the encoder's positions.
    """
    lines = task.lines[: measuring.call_lines]
    for beam in measuring.beams:
        print(f"\n{task.name}: what a job of {len(lines):,} lines compiles, beam {beam}\n")
        table = Table(["job", *COLUMNS, "first line s", "job s", "MiB"])
        for precision in measuring.precisions:
            with tempfile.TemporaryDirectory() as folder:
                for cache in ("empty", "warm"):
                    name = f"{OURS} {precision}, cache {cache}"
                    try:
                        done, report = _run(task, measuring, precision, beam, Path(folder))
                    except ProcessError as error:
                        leave_out(name, error)
                        break
                    values = [report[key] for key in COLUMNS.values()]
                    first = first_line(done, len(lines))
                    table.row(name, *values, first, done.seconds, round(done.peak / 2**20))


def _run(
    task: Task, measuring: Measuring, precision: str, beam: int, folder: Path
) -> tuple[Finished, dict[str, Any]]:
    """The job, without its line that reports, and the report."""
    source = write_lines(folder / "source", task.lines[: measuring.call_lines])
    command = our_command(
        task,
        measuring,
        precision,
        module="benchmarks.decoding.reporting",
        input=source,
        compilation_cache=folder / "cache",
        quiet=True,
        **job_options(measuring, beam),
    )
    done = finished(command, environment=NO_CACHE)
    *lines, (_, last) = done.lines
    mark, _, text = last.partition(" ")
    if mark != MARK:
        raise ProcessError(f"expected a line '{MARK} ...' at the end, got '{last}'")
    return Finished(done.seconds, done.peak, tuple(lines)), json.loads(text)
