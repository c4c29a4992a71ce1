"""Training, compared with Marian and plain JAX: words a second after warm-up, and over the first epochs.

Every row trains the same model on the same batches (with several threads, Marian trains on as many batches in
parallel, each an update, and ends them in another order). Words are target words, without padding but with
``</s>``, as in Marian's log.

First table: ``--updates`` updates after the ``--skipped`` ones, in which Marian's threads map their memory.
Compiling and loading come before the clock starts, too, and so does a run of the same updates in which ours
and plain JAX map their memory. Batches have the shapes of a long training; rows take turns, in rounds. A
batch that a thread of Marian has begun counts when it ends, so few updates tell little: half of an epoch
varies by a few percent.

Second table: three epochs from scratch, with the command that a user would run: the first from the start of
the process, then the second and the third, all compiling counted; with an empty compilation cache, and again
with the cache that this run left.

"TFLOP/s" counts the operations that the model needs (``benchmarks.training.work``); "% of peak" is their
share of the chip's peak (``benchmarks.measuring.chips``), empty for an unknown chip without ``--peak``, and
for Marian's CPU next to a GPU. ``--precision`` is for ours alone: Marian and plain JAX compute in float32.

"times Marian" compares with Marian with as many threads (for a GPU: with the most), "times plain JAX" with
the step written by hand; both are ratios of speeds, taken within a round.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks.measuring import (
    Child,
    Finished,
    Samples,
    Table,
    alternate,
    finished,
    print_machine,
    share_gpu,
)
from benchmarks.measuring.chips import add_chip, peak_here
from benchmarks.measuring.options import natural, positive
from benchmarks.peers import pymarian_training
from benchmarks.peers.programs import add_pymarian, add_threads, find_pymarian
from benchmarks.training.models import NO_CACHE, add_options, command_line, training_options
from benchmarks.training.work import RATES, rates_of

MARIAN, OURS, PLAIN = "pymarian", "mgraph", "plain JAX"
COLD, WARM = "mgraph, cache empty", "mgraph, cache warm"
EPOCHS = 3
"""Epochs of the second table."""
EPOCH = "Starting data epoch {} "
"""In the log line that follows the epoch before."""


class Row(NamedTuple):
    """A trainer, and its number of threads; 0 for a GPU."""

    trainer: str
    threads: int

    def __str__(self) -> str:
        where = f"{self.threads} thread{'s'[: self.threads > 1]}" if self.threads else "GPU"
        return f"{self.trainer}, {where}"


class Job(NamedTuple):
    """A model to train, and how long."""

    options: dict[str, Any]
    """Options of training, by attribute name."""
    precision: str
    """The type in which ours computes."""
    peak: float | None
    """The chip's peak, in TFLOP/s."""
    marian: str
    """The program; empty if there is none."""
    threads: tuple[int, ...]
    """Threads of Marian's rows."""
    own_threads: tuple[int, ...]
    """For ours and plain JAX: the same, or 0 for a GPU."""
    plain: bool
    """Whether plain JAX trains, too."""
    skipped: int
    updates: int
    folder: Path


def compare_updates(job: Job, rounds: int) -> int:
    """Print the first table; returns the target words of an epoch."""
    marian = [Row(MARIAN, threads) for threads in job.threads if job.marian]
    own = [Row(OURS, threads) for threads in job.own_threads]
    if job.plain:
        own.append(Row(PLAIN, max(job.own_threads)))
    with ExitStack() as stack:
        children = {row: stack.enter_context(_child(job, row)) for row in own}
        candidates = {str(row): _marian_candidate(job, row) for row in marian}
        for row, child in children.items():
            ready = child.ask("prepare")
            child.ask("rest")
            print(f"{row}: {ready['shapes']} programs ready after {ready['seconds']:.1f} s", flush=True)
            candidates[str(row)] = partial(_seconds_per_word, child)
        taken = alternate(candidates, rounds, warm_up=0)
        words: int = children[own[0]].ask("epoch")["words"]
        work: float = children[own[0]].ask("work")["per_word"]
    speeds = {row: taken[str(row)].rates(1) for row in marian + own}
    print(f"\nupdates {job.skipped + 1} to {job.skipped + job.updates}\n")
    table = Table(["trainer", "words/s", *RATES, "times Marian", "times plain JAX"])
    for row, speed in speeds.items():
        same = row.trainer == OURS or job.precision == "float32"
        there = row.threads in job.own_threads  # Marian's rows stay on the CPU when ours has a GPU
        rates = rates_of(work, taken[str(row)], job.peak if same and there else None)
        peers = Row(MARIAN, row.threads or max(job.threads)), Row(PLAIN, row.threads)
        ratios = (speed.over(speeds[peer]) if peer in speeds else "" for peer in peers)
        table.row(str(row), speed, *rates, *ratios)
    return words


@contextmanager
def _child(job: Job, row: Row) -> Iterator[Child]:
    """The process in which a row of ours or of plain JAX trains."""
    options = {
        **job.options,
        "cpu_threads": row.threads,
        "model": str(job.folder / "none.npz"),
        "no_reload": True,
        "compilation_cache": str(job.folder / "prepared"),
        "precision": (job.precision, "float32"),
    }
    task = {"trainer": row.trainer, "options": options, "skipped": job.skipped, "updates": job.updates}
    child = Child("benchmarks.training.child", json.dumps(task), environment=NO_CACHE)
    try:
        yield child
    finally:
        child.close()


def _seconds_per_word(child: Child) -> float:
    """Seconds per word of the second of two runs. The first maps memory for all shapes, which was given back
    for the turns of the other rows."""
    child.ask("run")
    found = child.ask("run")
    child.ask("rest")
    return float(found["seconds"]) / int(found["words"])


def _marian_candidate(job: Job, row: Row) -> Callable[[], float]:
    def run() -> float:
        with tempfile.TemporaryDirectory(dir=job.folder) as folder:
            found = pymarian_training.timed_updates(
                job.marian,
                job.options,
                Path(folder),
                threads=row.threads,
                skipped=job.skipped,
                updates=job.updates,
            )
        return found.seconds / found.words

    return run


def compare_epochs(job: Job, rounds: int, words: int) -> None:
    """Print the second table."""
    threads, own = max(job.threads), max(job.own_threads)
    options = {**job.options, "after_epochs": EPOCHS, "disp_freq": "10u"}
    runs: dict[str, list[Finished]] = {}

    def ours(cache: Path) -> Finished:
        with tempfile.TemporaryDirectory(dir=job.folder) as folder:
            given = {
                **options,
                "model": Path(folder) / "model.npz",
                "cpu_threads": own,
                "compilation_cache": cache,
                "precision": (job.precision, "float32"),
            }
            command = [sys.executable, "-m", "nmt", "train", *command_line(given)]
            return finished(command, environment=NO_CACHE)

    def cold() -> Finished:
        shutil.rmtree(job.folder / "cache", ignore_errors=True)
        return ours(job.folder / "cache")

    def marian() -> Finished:
        with tempfile.TemporaryDirectory(dir=job.folder) as folder:
            return pymarian_training.train(job.marian, options, Path(folder), threads=threads)

    def kept(name: str, run: Callable[[], Finished]) -> Callable[[], float]:
        def seconds() -> float:
            found = run()
            runs.setdefault(name, []).append(found)
            return found.seconds

        return seconds

    names: dict[str, Callable[[], Finished]] = {str(Row(MARIAN, threads)): marian} if job.marian else {}
    names |= {COLD: cold, WARM: lambda: ours(job.folder / "cache")}
    alternate({name: kept(name, run) for name, run in names.items()}, rounds, warm_up=0)
    ends = {
        name: [[run.until(EPOCH.format(n)) for n in (2, EPOCHS + 1)] for run in runs[name]] for name in names
    }
    first = {name: Samples(tuple(end for end, _ in found)) for name, found in ends.items()}
    later = {name: Samples(tuple(end - start for start, end in found)) for name, found in ends.items()}
    print(f"\nepochs of {words:,} words\n")
    heads = ["first, s", "words/s", "times Marian", "later ones, s", "words/s", "times Marian"]
    table = Table(["trainer", *heads])
    peer = str(Row(MARIAN, threads))
    for name in names:
        cells: list[Any] = []
        for taken, number in ((first, 1), (later, EPOCHS - 1)):
            ratio = taken[peer].over(taken[name]) if peer in taken else ""
            cells += [taken[name], taken[name].rates(words * number), ratio]
        table.row(name, *cells)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, ["transformer-small", "s2s-gru"])
    add_pymarian(parser)
    add_threads(parser)
    add_chip(parser)
    parser.add_argument("--updates", type=positive, default=24, help="that count, in a round (%(default)s)")
    parser.add_argument("--skipped", type=natural, default=24, help="updates before those (%(default)s)")
    parser.add_argument(
        "--without-plain-jax",
        action="store_true",
        help="leave plain JAX out: it needs a lot of memory on top of the others",
    )
    parser.add_argument("--rounds", type=positive, default=3, help="of the first table (%(default)s)")
    parser.add_argument(
        "--epochs", type=natural, default=1, help="rounds of the second table; 0: leave it out"
    )
    given = parser.parse_args()
    share_gpu()
    pymarian = find_pymarian(given)
    print_machine(
        corpus=" ".join(given.train_sets or ["made"]),
        mini_batch=given.mini_batch,
        max_length=given.max_length,
        updates=given.updates,
        skipped=given.skipped,
        rounds=given.rounds,
        epochs=given.epochs,
        precision=given.precision,
        pymarian=pymarian or "none",
    )
    own_threads = tuple(given.threads) if jax.default_backend() == "cpu" else (0,)
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models:
            options = training_options(model, given, Path(folder))
            job = Job(
                options,
                given.precision,
                peak_here(given),
                pymarian,
                tuple(given.threads),
                own_threads,
                not given.without_plain_jax,
                given.skipped,
                given.updates,
                Path(folder),
            )
            print(f"== {model}")
            words = compare_updates(job, given.rounds)
            if given.epochs:
                compare_epochs(job, given.epochs, words)
            print()


if __name__ == "__main__":
    main()
