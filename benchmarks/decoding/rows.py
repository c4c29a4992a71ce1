"""What the tables have in common: which programs translate, their commands, and how rows are compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.decoding.models import Task
from benchmarks.measuring import ProcessError, Samples
from benchmarks.peers.ctranslate2_decoding import CTranslate2, settings
from benchmarks.peers.programs import Programs
from benchmarks.peers.pymarian_decoding import PymarianDecoder
from benchmarks.training.models import command_line

NORMALIZE = 0.6
"""Normalization of scores by length, with more than one hypothesis."""
OURS, MARIAN, CTRANSLATE2 = "mgraph", "pymarian", "CTranslate2"


@dataclass(frozen=True)
class Measuring:
    """How all tables are measured: see the options of ``benchmarks.decode``."""

    programs: Programs
    precisions: Sequence[str]
    beams: Sequence[int]
    batches: Sequence[int]
    """Batch sizes of second calls."""
    mini_batch: int
    """The batch size of whole jobs."""
    lines: Sequence[int]
    """Numbers of lines of whole jobs, one table for each."""
    call_lines: int
    latencies: int
    """How many lines are translated one by one."""
    threads: int
    own_threads: int
    """The same, or 0 if ours has a GPU."""
    rounds: int

    @property
    def longest(self) -> int:
        """The most lines that a table needs."""
        return max(*self.lines, self.call_lines, self.latencies)


def normalization(beam: int) -> float:
    """``--normalize`` for a beam."""
    return NORMALIZE if beam > 1 else 0.0


def job_options(measuring: Measuring, beam: int) -> dict[str, Any]:
    """Options of a whole job, ours and Marian's."""
    return {
        "mini_batch": measuring.mini_batch,
        "maxi_batch": 100,
        "maxi_batch_sort": "src",
        "beam_size": beam,
        "normalize": normalization(beam),
    }


def our_command(
    task: Task, measuring: Measuring, precision: str, *, module: str = "nmt", **more: Any
) -> list[str]:
    """``mgraph decode``, as a process of this Python; ``module`` may be another that takes its arguments."""
    options = {**task.own_options(precision), "cpu_threads": measuring.own_threads, **more}
    return [sys.executable, "-m", module, "decode", *command_line(options)]


def marian(task: Task, measuring: Measuring, precision: str) -> PymarianDecoder:
    """Marian with the task's model."""
    options = {**task.options(precision), "cpu_threads": measuring.threads}
    return PymarianDecoder(measuring.programs.pymarian, options)


def ctranslate2(task: Task, measuring: Measuring, precision: str) -> dict[str, CTranslate2]:
    """CTranslate2 with the task's model, by name of the row, with each way to use the threads.

    It has no shortlists of Marian's kind, and converts float32 files; a ProcessError says so, or why it
    cannot take the model.
    """
    if task.shortlist:
        raise ProcessError("it has no lexical shortlists by sentence")
    python, model = measuring.programs.ctranslate2_python, task.files["float32"]
    return {
        f"{CTRANSLATE2} {precision}, {workers} x {threads}": CTranslate2(
            python, model, task.vocabs, task.folder, precision, workers, threads
        )
        for workers, threads in settings(measuring.threads)
    }


def leave_out(name: str, error: ProcessError) -> None:
    """Say why a row is missing."""
    print(f"{name}: left out: {' '.join(error.reason.split())[:300]}", flush=True)


def best(taken: Mapping[str, Samples], prefix: str) -> Sequence[str]:
    """The row with the lowest median among those whose names have this prefix; empty if there are none."""
    found = [name for name in taken if name.startswith(prefix)]
    return [min(found, key=lambda name: taken[name].median)] if found else []


def chosen(taken: Mapping[str, Samples], precisions: Iterable[str]) -> list[str]:
    """The rows to show, in their order: all, except that CTranslate2 has only its best of each precision."""
    winners = {name for precision in precisions for name in best(taken, f"{CTRANSLATE2} {precision}")}
    return [name for name in taken if not name.startswith(CTRANSLATE2) or name in winners]


def attempted(candidates: dict[str, Any], name: str, make: Callable[[], Mapping[str, Any]]) -> None:
    """Add the candidates that ``make`` gives, or say why there are none."""
    try:
        candidates.update(make())
    except ProcessError as error:
        leave_out(name, error)


def slower(name: str, taken: Mapping[str, Samples]) -> Samples | str:
    """How many times as long as ours of the same precision a row takes; empty for ours."""
    who, precision, *_ = name.replace(",", "").split()
    ours = taken.get(f"{OURS} {precision}")
    return "" if who == OURS or ours is None else taken[name].over(ours)


def same(found: Sequence[str] | None, expected: Sequence[str] | None) -> str:
    """The share of equal lines, as text."""
    if not found or not expected or len(found) != len(expected):
        return ""
    return f"{sum(a == b for a, b in zip(found, expected, strict=True)) / len(expected):.1%}"


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write a text; returns its path."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
