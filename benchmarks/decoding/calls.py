"""Second calls: the same process translates a text again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.decoding.calling import Caller, callers, prepared
from benchmarks.decoding.models import Task
from benchmarks.decoding.rows import OURS, Measuring, chosen, leave_out, same, slower
from benchmarks.measuring import Table, alternate


def compare_calls(task: Task, measuring: Measuring, folder: Path) -> None:
    """Print a table for each size of batch and beam."""
    lines = task.lines[: measuring.call_lines]
    with ExitStack() as stack:
        found = callers(task, measuring, folder / "cache", stack)
        for batch in measuring.batches:
            for beam in measuring.beams:
                _compare(task, measuring, found, lines, batch, beam)


def _compare(
    task: Task,
    measuring: Measuring,
    found: Mapping[str, Caller],
    lines: Sequence[str],
    batch: int,
    beam: int,
) -> None:
    made: dict[str, list[str]] = {}

    def run(name: str) -> float:
        seconds, made[name] = found[name].decode(lines, batch, beam)
        return seconds

    ready = prepared(found, {name: partial(run, name) for name in found})
    taken = alternate(ready, measuring.rounds, warm_up=0, left_out=leave_out)
    print(f"\n{task.name}: a second call, {len(lines):,} lines, batch {batch}, beam {beam}\n")
    table = Table(["decoder", "sentences/s", "words/s", "ours is faster", "same"])
    expected = next((made[name] for name in taken if name.startswith(OURS)), None)
    for name in chosen(taken, measuring.precisions):
        words = sum(len(line.split()) for line in made[name])
        seconds = taken[name]
        equal = same(made[name], expected)
        table.row(name, seconds.rates(len(lines)), seconds.rates(words), slower(name, taken), equal)
