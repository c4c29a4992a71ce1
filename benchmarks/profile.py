"""Which operators the time of updates and translations goes to, kernel by kernel, on one CPU thread.

A row for each operator in whose scope a kernel was traced, forwards and ``backwards``; ``products`` are the
matrix products of all operators, which XLA compiles separately. ``ms``: for one update, one line, or all
lines of a call. ``without profiler``: the whole, not profiled. Kernels include neither Python nor waiting.

    python -m benchmarks.profile --models transformer-small s2s-gru --decoding small --batches 1 64
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.decoding.models import MODELS as DECODERS
from benchmarks.decoding.models import PRECISIONS, made_tasks
from benchmarks.decoding.rows import normalization
from benchmarks.measuring import Child, Table, positive, print_machine
from benchmarks.measuring.kernels import dump_to
from benchmarks.measuring.options import natural
from benchmarks.training.models import add_options, training_options

SKIPPED = 8
"""Batches before the timed ones."""
ROWS = 14
"""The most rows of a table; the rest is summed up."""


def updates(model: str, given: argparse.Namespace, folder: Path) -> None:
    """Print the time that the operators of a model's updates take."""
    options = training_options(model, given, folder)
    options |= {"model": str(folder / "none.npz"), "no_reload": True, "cpu_threads": 1}
    options["compilation_cache"] = "none"
    task = {"trainer": "mgraph", "options": options, "skipped": SKIPPED, "updates": given.count}
    dumped = folder / f"{model}.programs"
    child = Child("benchmarks.training.child", json.dumps(task), environment=dump_to(dumped))
    try:
        child.ask("prepare")
        child.ask("run")  # maps the memory that updates need
        plain = child.ask("run")
        found = child.ask("profile", dumped=str(dumped))
    finally:
        child.close()
    words = plain["words"] / given.count
    title = f"{model}: an update of {given.mini_batch} sentences, {words:,.0f} target words"
    show(title, found, plain["seconds"], given.count)


def translations(model: str, precision: str, batch: int, given: argparse.Namespace, folder: Path) -> None:
    """Print the time that the operators of a model's translations take."""
    task = next(made_tasks(model, folder, given.lines))
    options = {**task.own_options(precision), "cpu_threads": 1, "compilation_cache": "none"}
    dumped = folder / f"{model}.{precision}.{batch}.programs"
    child = Child("benchmarks.decoding.child", json.dumps(options), environment=dump_to(dumped))
    details: dict[str, Any] = {"lines": list(task.lines), "batch": batch, "beam": given.beam}
    details["normalize"] = normalization(given.beam)
    question = "latency" if batch == 1 else "decode"
    try:
        child.ask(question, **details)
        plain = child.ask(question, **details)["seconds"]
        found = child.ask("profile", **details, dumped=str(dumped))
    finally:
        child.close()
    calls, what = (len(task.lines), "a line by itself") if batch == 1 else (1, f"{len(task.lines)} lines")
    seconds = sum(plain) if batch == 1 else plain
    show(f"{model}, {precision}, beam {given.beam}: {what}", found, seconds, calls)


def show(title: str, found: dict[str, Any], plain: float, count: int) -> None:
    """Print a profile of ``count`` equal pieces of work, which took ``plain`` seconds without a profiler."""
    print(f"\n== {title}\n")
    seconds, counts, whole = found["seconds"], found["counts"], found["whole"]
    table = Table(["kernels of", "ms", "% of kernels", "kernels"], width=52)
    total = sum(seconds.values())
    ordered = sorted(seconds, key=seconds.__getitem__, reverse=True)

    def row(name: str, names: list[str]) -> None:
        own = sum(seconds[n] for n in names)
        run = sum(counts[n] for n in names)
        table.row(name, own / count * 1e3, 100 * own / total, run / count)

    for name in ordered[:ROWS]:
        row(name, [name])
    if ordered[ROWS:]:
        row(f"{len(ordered) - ROWS} others", ordered[ROWS:])
    row("all kernels", ordered)
    table.row("the whole, profiled", whole / count * 1e3)
    table.row("without profiler", plain / count * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, ["transformer-small", "s2s-gru"])
    parser.add_argument("--decoding", nargs="*", choices=DECODERS, default=["small"], help="(%(default)s)")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float32"])
    parser.add_argument("--batches", type=positive, nargs="+", default=[1], help="1: a call for each line")
    parser.add_argument("--beam", type=positive, default=1, help="(%(default)s)")
    parser.add_argument("--lines", type=positive, default=40, help="to translate (%(default)s)")
    parser.add_argument("--count", type=natural, default=6, help="of updates, 0 for none (%(default)s)")
    given = parser.parse_args()
    print_machine(threads=1)
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models if given.count else ():
            updates(model, given, Path(folder))
        for model in given.decoding:
            for precision in given.precisions:
                for batch in given.batches:
                    translations(model, precision, batch, given, Path(folder))


if __name__ == "__main__":
    main()
