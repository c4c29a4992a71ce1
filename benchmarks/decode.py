"""Translating beside Marian and CTranslate2: sentences and words a second, latency, the first translation.

First tables, one for each size of batch and beam: the same lines in batches of sentences of like length, rows
in turn, loading and compiling not counted. "same" is how many lines became what ours made of them; a word is
what the decoder printed between spaces. Then the latency of a sentence that is translated by itself (Marian
translates lines one by one only from a pipe; its row is its mean, with one thread). Last, the seconds that
``mgraph decode`` needs for one line, from its start, beyond those of ``import jax``: with an empty
compilation cache, and once more with the cache that this left.

Without ``--model`` a transformer that nobody trained translates a made-up text of lines of equal length; it
would never end, so its translations are bound to that length.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks.measuring import (
    Child,
    Samples,
    Table,
    alternate,
    finished,
    positive,
    print_machine,
    share_gpu,
)
from benchmarks.peers.ctranslate2_decoding import CTranslate2Decoder, CTranslate2Error
from benchmarks.peers.programs import Programs, add_programs, add_threads, find_programs
from benchmarks.peers.pymarian_decoding import PymarianDecoder
from benchmarks.training.models import MODELS, NO_CACHE, command_line
from benchmarks.training.text import write_text
from nmt.files.saving import save_model
from nmt.settings import TRAIN
from nmt.training.setup import load_or_create_vocabs, new_model

OURS, MARIAN, CTRANSLATE2 = "mgraph", "pymarian", "CTranslate2"
NORMALIZE = 0.6
"""Of scores by length, with more than one hypothesis."""


MADE_WORDS = 27
"""Of each made-up line, all of one length: Marian bounds translations by the longest source of a batch."""


class Job(NamedTuple):
    """What is translated, with what, by whom."""

    model: str
    vocabs: tuple[str, ...]
    lines: list[str]
    bounded: bool
    """Whether translations are bound to the length of their sources."""
    programs: Programs

    @property
    def factor(self) -> float:
        return 1.0 if self.bounded else 3.0


class Decoder(NamedTuple):
    """A row: who translates, with how many threads (0 for a GPU)."""

    name: str
    threads: int
    decode: Callable[[int, int, float], tuple[float, list[str]]]
    """Seconds and translations, by batch, beam and normalization."""
    latency: Callable[[int, float], float]
    """Seconds of a sentence by itself, by beam and normalization."""

    def __str__(self) -> str:
        where = f"{self.threads} thread{'s'[: self.threads > 1]}" if self.threads else "GPU"
        return f"{self.name}, {where}"


def decoders(job: Job, threads: Sequence[int], sentences: int, stack: ExitStack) -> list[Decoder]:
    """All rows; their processes end with the stack. ``sentences`` are translated for a latency."""
    found = []
    own = threads if jax.default_backend() == "cpu" else [0]
    for number in own:
        found.append(_ours(job, number, sentences, stack))
    for number in threads:
        if job.programs.pymarian:
            found.append(_marian(job, number, sentences))
        if job.programs.ctranslate2_python:
            try:
                found.append(_ctranslate2(job, number, sentences, stack))
            except CTranslate2Error as error:
                print(f"rows of CTranslate2 are left out: {error}")
    return found


def _ours(job: Job, threads: int, sentences: int, stack: ExitStack) -> Decoder:
    options = _own_options(job, threads)
    child = Child("benchmarks.decoding.child", json.dumps({"options": options, "lines": job.lines}))
    stack.callback(child.close)
    compiled: set[tuple[int, int]] = set()

    def decode(batch: int, beam: int, normalize: float) -> tuple[float, list[str]]:
        found = child.ask("decode", batch=batch, beam=beam, normalize=normalize)
        if found["programs"] and (batch, beam) in compiled:
            print(f"in a round that counts {found['programs']} programs were compiled")
        compiled.add((batch, beam))
        return found["seconds"], found["lines"]

    def latency(beam: int, normalize: float) -> float:
        found = child.ask("latency", beam=beam, normalize=normalize, sentences=sentences)
        return float(found["seconds"])

    return Decoder(OURS, threads, decode, latency)


def _own_options(job: Job, threads: int) -> dict[str, Any]:
    return {
        "models": [job.model],
        "vocabs": job.vocabs,
        "max_length": 1000,
        "max_length_factor": job.factor,
        "cpu_threads": threads,
    }


def _marian(job: Job, threads: int, sentences: int) -> Decoder:
    many, alone = (
        PymarianDecoder(job.programs.pymarian, job.model, job.vocabs, number) for number in (threads, 1)
    )
    decode = partial(many.decode, max_length_factor=job.factor)

    def latency(beam: int, normalize: float) -> float:
        lines = job.lines[:sentences]
        return alone.decode(lines, 1, beam, normalize, max_length_factor=job.factor)[0] / len(lines)

    return Decoder(MARIAN, threads, partial(decode, job.lines), latency)


def _ctranslate2(job: Job, threads: int, sentences: int, stack: ExitStack) -> Decoder:
    def started(workers: int, each: int) -> CTranslate2Decoder:
        decoder = CTranslate2Decoder(job.programs.ctranslate2_python, job.model, job.vocabs, workers, each)
        return stack.enter_context(decoder)

    many, one = started(threads, 1), started(1, threads)

    def latency(beam: int, normalize: float) -> float:
        taken = tuple(
            one.decode([line], 1, beam, normalize, bounded=job.bounded)[0] for line in job.lines[:sentences]
        )
        return Samples(taken).median

    def decode(batch: int, beam: int, normalize: float) -> tuple[float, list[str]]:
        return many.decode(job.lines, batch, beam, normalize, bounded=job.bounded)

    return Decoder(CTRANSLATE2, threads, decode, latency)


def compare_speed(job: Job, rows: Sequence[Decoder], batch: int, beam: int, rounds: int) -> None:
    """Print the table of a size of batch and beam."""
    normalize = NORMALIZE if beam > 1 else 0.0
    made: dict[str, list[str]] = {}

    def candidate(row: Decoder) -> Callable[[], float]:
        def run() -> float:
            seconds, made[str(row)] = row.decode(batch, beam, normalize)
            return seconds

        return run

    for row in rows:
        if row.name == OURS:
            row.decode(batch, beam, normalize)  # which compiles
    taken = alternate({str(row): candidate(row) for row in rows}, rounds, warm_up=0)
    print(f"\nbatch {batch}, beam {beam}\n")
    table = Table(["decoder", "sentences/s", "words/s", "ours is faster", "same"])
    ours = {row.threads: row for row in rows if row.name == OURS}
    for row in rows:
        name = str(row)
        own = str(ours.get(row.threads, rows[0]))
        words = sum(len(line.split()) for line in made[name])
        same = sum(a == b for a, b in zip(made[name], made[own], strict=True)) / len(job.lines)
        ratio: Samples | str = "" if name == own else taken[name].over(taken[own])
        table.row(name, taken[name].rates(len(job.lines)), taken[name].rates(words), ratio, f"{same:.1%}")


def compare_latency(rows: Sequence[Decoder], beams: Sequence[int]) -> None:
    """Print the table of sentences translated by themselves."""
    print("\na sentence by itself\n")
    table = Table(["decoder", *(f"beam {beam}, ms" for beam in beams)])
    marian = next((row for row in rows if row.name == MARIAN), None)
    for row in rows:
        if row.name == MARIAN and row is not marian:
            continue
        taken = [1e3 * row.latency(beam, NORMALIZE if beam > 1 else 0.0) for beam in beams]
        table.row(str(row._replace(threads=1) if row is marian else row), *taken)


def first_translation(job: Job, threads: int, beam: int) -> None:
    """Print the seconds until a fresh process has translated a line."""
    own = threads if jax.default_backend() == "cpu" else 0
    with tempfile.TemporaryDirectory() as folder:
        line = Path(folder, "line")
        line.write_text(job.lines[0] + "\n", encoding="utf-8")
        options = {
            **_own_options(job, own),
            "models": job.model,
            "beam_size": beam,
            "input": line,
            "compilation_cache": Path(folder, "cache"),
        }
        command = [sys.executable, "-m", "nmt", "decode", *command_line(options)]
        jax_alone = finished([sys.executable, "-c", "import jax"]).seconds
        cold, warm = (finished(command, environment=NO_CACHE).seconds for _ in range(2))
    print(f"\nthe first translation, beam {beam}: seconds beyond the {jax_alone:.2f} s of 'import jax'\n")
    table = Table(["compilation cache", "seconds"])
    table.row("empty", cold - jax_alone)
    table.row("warm", warm - jax_alone)


def made_job(folder: Path, lines: int, programs: Programs) -> Job:
    """A model that nobody trained, and a text that means nothing."""
    texts, vocabs = write_text(folder)
    model = folder / "model.npz"
    values = TRAIN.from_python(
        {**MODELS["transformer-small"], "train_sets": texts, "vocabs": vocabs, "model": str(model)}
    )
    save_model(new_model(values, load_or_create_vocabs(values)[2], seed=1), model)
    words = Path(texts[0]).read_text(encoding="utf-8").split()
    text = [" ".join(words[MADE_WORDS * line :][:MADE_WORDS]) for line in range(lines)]
    return Job(str(model), vocabs, text, True, programs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="Marian's file of a model (a transformer that nobody trained)")
    parser.add_argument("--vocabs", nargs=2, metavar=("SRC", "TRG"), help="its vocabularies")
    parser.add_argument("--input", help="a text to translate")
    parser.add_argument("--lines", type=positive, default=460, help="of it that are translated (%(default)s)")
    parser.add_argument("--batches", type=positive, nargs="+", default=[64, 16, 1], help="(64 16 1)")
    parser.add_argument("--beams", type=positive, nargs="+", default=[1, 4], help="(1 4)")
    add_programs(parser)
    add_threads(parser)
    parser.add_argument("--rounds", type=positive, default=3, help="of each table (%(default)s)")
    parser.add_argument(
        "--latencies", type=positive, default=30, help="sentences for a latency (%(default)s)"
    )
    given = parser.parse_args()
    if len({given.model is None, given.vocabs is None, given.input is None}) > 1:
        raise SystemExit("--model, --vocabs and --input: expected all or none")
    share_gpu()
    programs = find_programs(given)
    print_machine(
        model=given.model or "made",
        input=given.input or "made",
        lines=given.lines,
        threads=" ".join(map(str, given.threads)),
        rounds=given.rounds,
        latencies=given.latencies,
        pymarian=programs.pymarian or "none",
        ctranslate2=programs.ctranslate2_python or "none",
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if given.model is None:
            job = made_job(Path(folder), given.lines, programs)
        else:
            lines = Path(given.input).read_text(encoding="utf-8").splitlines()[: given.lines]
            job = Job(given.model, tuple(given.vocabs), lines, False, programs)
        rows = decoders(job, given.threads, given.latencies, stack)
        for batch in given.batches:
            for beam in given.beams:
                compare_speed(job, rows, batch, beam, given.rounds)
        compare_latency(rows, given.beams)
        first_translation(job, max(given.threads), given.beams[-1])


if __name__ == "__main__":
    main()
