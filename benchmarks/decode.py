"""Translating, compared with Marian and CTranslate2: whole jobs, second calls, single lines, programs,
memory, and what the company of other lines changes.

Tables (``--tables``); rows take turns in rounds, and ratios are taken within a round:

- ``jobs``: a process from its start to its end, for each of ``--lines``. Ours runs with an empty compilation
  cache, and again with the cache that this run left; "warm is faster" and "empty is faster" say how many
  times as long a peer takes as these two. MiB is the peak memory of a process.
- ``calls``: a second call in one process, with lines of mixed lengths, which peers search in batches of
  sentences of similar length. Ours is given all lines and fills its rows whatever the batch. Batches of 1
  are an exception: each line is then a separate call, and ours makes as many calls in parallel as it has
  threads, as peers search as many batches in parallel. Marian is restarted each time, so its own count of
  seconds is taken, which begins after loading (``--stat-freq``).
- ``latency``: single lines, median and 95th percentile (Marian: one thread, the time between the lines that
  it prints); then the time from the start of a process to its first translated line, with an empty and a
  warm cache, and less that of ``import jax`` alone (CTranslate2: a whole process for a line).
- ``programs``: what ours compiles for the lines of ``calls``, and the peak memory of the process.
- ``company``: how many of the lines of ``calls`` are translated differently in calls of ``--batches`` lines
  than in one call with all lines; for peers, in batches of this size than in batches of ``--mini-batch``.

Every peer has its best setting: CTranslate2 runs with as many workers as threads and with one worker, and
the better row is shown; "2 x 1" is two workers of one thread each. int8 is Marian's own type for this
processor, in a file that Marian and ours read, and CTranslate2's own. A ratio is to ours in the same
precision; "same" is the share of lines equal to those of the first row of ours. A row that a peer cannot do
is left out, and a line says why.

Models (``--models``) are made, not trained, as ``benchmarks.copying`` describes: random parameters, some of
which are set so that translations are copies of their sources and end by themselves. A minute of training
would not teach as much, and the larger models cannot be trained here. Each word has a probability of about
0.8, so beams have alternatives to weigh. Source lengths are distributed as in Europarl; a word ``stop``
within most sources ends the translation, so that it has 0.4 to 1 times as many words. All programs do the
same work, and nothing bounds it. ``small`` is a transformer 256/8/1024/3+3, V 2,000; ``opus``
512/8/2048/6+6, V 58,000, tied; ``student`` 256/8/1536, 6 layers and 2 SSRU layers, V 32,000, tied, without
and with a shortlist; ``s2s`` GRU 256/512, V 2,000. Or give a model, its vocabularies and a text.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks.decoding.calls import compare_calls
from benchmarks.decoding.company import compare_company
from benchmarks.decoding.jobs import compare_jobs
from benchmarks.decoding.latency import compare_first_lines, compare_latency
from benchmarks.decoding.models import MODELS, PRECISIONS, Task, given_task, made_tasks
from benchmarks.decoding.programs import report_programs
from benchmarks.decoding.rows import Measuring
from benchmarks.measuring import positive, print_machine, share_gpu
from benchmarks.peers.programs import add_programs, find_programs

TABLES = ("jobs", "calls", "latency", "programs", "company")


def options() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tables", nargs="+", choices=TABLES, default=TABLES, help="what is measured (all)")
    add("--models", nargs="+", choices=MODELS, default=["small"], help="that translate (small)")
    add("--model", help="Marian's file of a model, in place of these")
    add("--vocabs", nargs=2, metavar=("SRC", "TRG"), help="its vocabularies")
    add("--input", help="a text to translate")
    add("--shortlist", nargs="+", default=(), help="its shortlist, as for mgraph decode")
    add("--folder", type=Path, help="where models are made, and kept (a temporary folder)")
    number: dict[str, Any] = {"type": positive}
    add("--lines", **number, nargs="+", default=[1, 100, 460, 2000], help="of jobs (1 100 460 2000)")
    add("--call-lines", **number, default=460, help="of calls, programs and company (%(default)s)")
    add("--latencies", **number, default=30, help="lines that are translated alone (%(default)s)")
    add("--mini-batch", **number, default=64, help="of jobs, programs and company (%(default)s)")
    add("--batches", **number, nargs="+", default=[64, 16, 1], help="of calls and company (64 16 1)")
    add("--beams", **number, nargs="+", default=[1, 4], help="(1 4)")
    add("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS, help="(float32 int8)")
    add("--threads", **number, default=2, help="of the CPU (%(default)s); ours takes a GPU if there is one")
    add("--rounds", **number, default=3, help="of each table (%(default)s)")
    add_programs(parser)
    return parser


def measuring(given: argparse.Namespace) -> Measuring:
    """How to measure, according to the options."""
    return Measuring(
        programs=find_programs(given),
        precisions=given.precisions,
        beams=given.beams,
        batches=given.batches,
        mini_batch=given.mini_batch,
        lines=given.lines,
        call_lines=given.call_lines,
        latencies=given.latencies,
        threads=given.threads,
        own_threads=given.threads if jax.default_backend() == "cpu" else 0,
        rounds=given.rounds,
    )


def tasks(given: argparse.Namespace, folder: Path, lines: int) -> Iterator[Task]:
    """What is translated, according to the options."""
    if given.model is not None:
        yield given_task(given.model, given.vocabs, given.input, given.shortlist, folder, lines)
        return
    for name in given.models:
        yield from made_tasks(name, folder, lines)


def measure(task: Task, how: Measuring, tables: list[str]) -> None:
    """Print the tables of a model."""
    if "jobs" in tables:
        compare_jobs(task, how)
    with tempfile.TemporaryDirectory() as folder:
        if "calls" in tables:
            compare_calls(task, how, Path(folder))
        if "latency" in tables:
            compare_latency(task, how, Path(folder))
    if "latency" in tables:
        compare_first_lines(task, how)
    if "programs" in tables:
        report_programs(task, how)
    if "company" in tables:
        with tempfile.TemporaryDirectory() as folder:
            compare_company(task, how, Path(folder))


def main() -> None:
    """Print the tables."""
    given = options().parse_args()
    if len({given.model is None, given.vocabs is None, given.input is None}) > 1:
        raise SystemExit("--model, --vocabs and --input: expected all or none")
    if given.shortlist and given.model is None:
        raise SystemExit("--shortlist goes with --model")
    share_gpu()
    how = measuring(given)
    print_machine(
        model=given.model or "made",
        input=given.input or "made",
        threads=how.threads,
        rounds=how.rounds,
        mini_batch=how.mini_batch,
        pymarian=how.programs.pymarian or "none",
        ctranslate2=how.programs.ctranslate2_python or "none",
    )
    with tempfile.TemporaryDirectory() as temporary:
        for task in tasks(given, given.folder or Path(temporary), how.longest):
            measure(task, how, given.tables)


if __name__ == "__main__":
    main()
