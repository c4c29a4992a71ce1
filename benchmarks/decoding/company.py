"""How the company of other lines changes the translation of a line."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.decoding.calling import Caller, callers
from benchmarks.decoding.models import Task
from benchmarks.decoding.rows import OURS, Measuring, leave_out
from benchmarks.measuring import ProcessError, Table


def compare_company(task: Task, measuring: Measuring, folder: Path) -> None:
    """Print a table for each beam: how many lines change, by the number of lines translated together.

    For ours, that is the number of lines in a call, compared with one call for all lines; for peers, it is
    the batch size, compared with ``mini_batch``.
    """
    lines = task.lines[: measuring.call_lines]
    with ExitStack() as stack:
        found = callers(task, measuring, folder / "cache", stack)
        for beam in measuring.beams:
            print(f"\n{task.name}: of {len(lines):,} lines, those translated otherwise, beam {beam}\n")
            table = Table(["lines together", *map(str, measuring.batches)])
            for name, caller in found.items():
                usual = len(lines) if name.startswith(OURS) else measuring.mini_batch
                try:
                    table.row(name, *_changes(caller, lines, usual, measuring.batches, beam))
                except ProcessError as error:
                    leave_out(name, error)


def _changes(caller: Caller, lines: Sequence[str], usual: int, counts: Sequence[int], beam: int) -> list[int]:
    """For each count of lines together, how many translations differ from those with the usual count."""
    expected = caller.company(lines, usual, beam)
    return [
        sum(one != other for one, other in zip(caller.company(lines, count, beam), expected, strict=True))
        for count in counts
    ]
