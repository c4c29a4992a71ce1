"""Compiling: the programs of an epoch of mixed lengths, a second run, and loops of different lengths.

First table: one epoch with the command that a user would run, in a fresh process with an empty compilation
cache, and again with the cache that this run left. "padding" is what is added for the shapes of programs, as
a fraction of all positions; "first update" and "seconds" count from the start of the process. Tracing and
compiling overlap with updates, so their sum is not what they cost. Second table: the program that computes
the gradient of a batch of 16 sentences, for a model whose loops over time have different lengths. The first
translation of a process is in ``benchmarks.decode``.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import Finished, Table, finished, positive, print_machine
from benchmarks.training.models import MODELS, NO_CACHE, add_options, command_line, training_options
from mgraph import compile_stats
from nmt.runtime import devices
from nmt.settings import TRAIN
from nmt.training.learning.fit import full_batch
from nmt.training.learning.learner import Learner
from nmt.training.setup import load_or_create_vocabs, new_model

ROWS = 16
"""Sentences of the second table's batches."""
COMPILED = re.compile(r"\[programs\] Compiled (\d+), read (\d+) from the compilation cache, in ([\d.]+)s")
PADDING = re.compile(r"batches of \d+ shapes; padding takes .*, ([\d.]+%) for the shapes")


def compare_epochs(options: dict[str, Any], folder: Path, epochs: int) -> None:
    """Print the first table."""
    headings = ["cache", "compiled", "read", "tracing + compiling s", "padding", "first update", "seconds"]
    table = Table(headings, width=8)
    for cache in ("empty", "warm"):
        with tempfile.TemporaryDirectory(dir=folder) as model:
            given = {
                **options,
                "after_epochs": epochs,
                "disp_first": 1,
                "model": Path(model) / "model.npz",
                "compilation_cache": folder / "cache",
            }
            command = [sys.executable, "-m", "nmt", "train", *command_line(given)]
            run = finished(command, environment=NO_CACHE)
        [(compiled, read, seconds)] = _found(run, COMPILED)
        padding = " ".join(part for (part,) in _found(run, PADDING))
        first = run.until("Up. 1 ")
        table.row(cache, int(compiled), int(read), float(seconds), padding, first, run.seconds)


def _found(run: Finished, pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    """What the lines of the log say that match a pattern."""
    return [found.groups() for _, line in run.lines if (found := pattern.search(line))]


def compare_lengths(options: dict[str, Any], lengths: list[int]) -> None:
    """Print the second table."""
    values = TRAIN.from_python({**options, "model": "model.npz"})
    vocabs, paths, dims = load_or_create_vocabs(values)
    values = replace(values, vocabs=paths, dim_vocabs=dims)
    learner = Learner.from_options(new_model(values, dims, 1), values, seed=1)
    learner.memory(full_batch(ROWS, min(lengths) // 2, len(vocabs)))  # compiles what all have in common
    table = Table(["length", "tracing s", "compiling s"], width=8)
    for length in lengths:
        before = compile_stats()
        learner.memory(full_batch(ROWS, length, len(vocabs)))
        found = compile_stats() - before
        table.row(str(length), found.trace_seconds, found.compile_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, ["transformer-small"])
    parser.add_argument("--epochs", type=positive, default=1, help="of the first table (%(default)s)")
    parser.add_argument(
        "--rnn", choices=MODELS, default="s2s-gru", help="the model of the second table (%(default)s)"
    )
    parser.add_argument(
        "--lengths", type=positive, nargs="+", default=[16, 64, 256], help="of its loops (16 64 256)"
    )
    given = parser.parse_args()
    devices.start()
    print_machine(mini_batch=given.mini_batch, epochs=given.epochs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in given.models:
            print(f"== {model}, {given.epochs} epoch(s)\n")
            (folder / model).mkdir()
            compare_epochs(training_options(model, given, folder), folder / model, given.epochs)
            print()
        print(f"== {given.rnn}, gradient of {ROWS} sentences\n")
        compare_lengths(training_options(given.rnn, given, folder), given.lengths)


if __name__ == "__main__":
    main()
