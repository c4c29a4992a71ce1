"""Peak memory of training and decoding, compared with Marian, plain JAX and CTranslate2, at equal batches.

``process``: the peak of a process, everything counted; the first line is what Python and JAX take. A process
that compiles needs more: "programs from a cache" is a second process, after the first has compiled what the
epoch needs. By XLA's analysis of the program for the largest batch: ``state``, the parameters and what an
optimizer keeps for them, and ``step``, all that an update needs besides. ``GPU``: the peak of its memory, if
there is one.

Marian's threads each take their own batch, with their own parameters; CTranslate2's share one. Decoding is by
untrained models, which would never end: a translation is as long as its source.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks.decoding.rows import leave_out
from benchmarks.measuring import Child, ProcessError, Table, finished, positive, print_machine, share_gpu
from benchmarks.peers import pymarian_training
from benchmarks.peers.ctranslate2_decoding import CTranslate2
from benchmarks.peers.programs import Programs, add_programs, find_programs
from benchmarks.training.models import NO_CACHE, add_options, command_line, training_options
from nmt.files.saving import save_model
from nmt.settings import TRAIN
from nmt.training.setup import load_or_create_vocabs, new_model

MIB = 1 << 20
LINES = 128
"""Lines to translate."""
FIRST = "mgraph"
"""The row that fills the cache of the next one."""
TRAINERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (FIRST, "mgraph", {}),
    ("mgraph, programs from a cache", "mgraph", {}),
    ("mgraph --gradient-checkpointing", "mgraph", {"gradient_checkpointing": True}),
    ("plain JAX", "plain JAX", {}),
)


class Peers(NamedTuple):
    """Programs to compare with, and the most threads that each has."""

    programs: Programs
    threads: int


def training(options: Mapping[str, Any], peers: Peers, updates: int, folder: Path) -> None:
    """Print the memory that this many updates need."""
    table = Table(["training", "process MiB", "state MiB", "step MiB", "GPU MiB", "largest batch"])
    for threads in sorted({1, peers.threads}) if peers.programs.pymarian else ():
        given = {**options, "after_batches": updates, "disp_freq": "1u"}
        with tempfile.TemporaryDirectory(dir=folder) as place:
            peak = pymarian_training.train(peers.programs.pymarian, given, Path(place), threads=threads).peak
        table.row(f"pymarian, {threads} thread{'s'[: threads > 1]}", peak / MIB)
    for name, trainer, more in TRAINERS:
        found = _trained({**options, **more}, trainer, peers.threads, updates, folder, fill=name == FIRST)
        sizes = [found[key] / MIB if found[key] else "" for key in ("peak", "held", "more", "device")]
        table.row(name, *sizes, " x ".join(map(str, found["shape"])))
    shutil.rmtree(folder / "cache", ignore_errors=True)


def _trained(
    options: Mapping[str, Any], trainer: str, threads: int, updates: int, folder: Path, *, fill: bool
) -> dict[str, Any]:
    """The memory of a process in which ours or plain JAX trains, before it fills the cache."""
    own = {**options, "model": str(folder / "none.npz"), "no_reload": True}
    own["cpu_threads"] = threads if jax.default_backend() == "cpu" else 0
    own["compilation_cache"] = str(folder / "cache")
    task = {"trainer": trainer, "options": own, "skipped": 0, "updates": updates}
    child = Child("benchmarks.training.child", json.dumps(task), environment=NO_CACHE)
    try:
        child.ask("prepare")
        child.ask("run")
        found = child.ask("memory")
        if fill:
            child.ask("fill")
        return found
    finally:
        child.close()


def decoding(options: Mapping[str, Any], peers: Peers, beams: Sequence[int], folder: Path) -> None:
    """Print the memory that decoding needs, for each beam size."""
    table = Table(["decoding", *(f"beam {beam}, MiB" for beam in beams)])
    model, text = folder / "decoder.npz", folder / "lines.txt"
    lines = _lines(Path(options["train_sets"][0]), options["max_length"])
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    values = TRAIN.from_python({**options, "model": str(model)})
    save_model(new_model(values, load_or_create_vocabs(values)[2], seed=1), model)
    words = command_line(
        {
            "models": model,
            "vocabs": options["vocabs"],
            "input": text,
            "mini_batch": options["mini_batch"],
            "maxi_batch": 100,
            "maxi_batch_sort": "src",
            "max_length_factor": 1,
        }
    )
    ours = [sys.executable, "-m", "nmt"]
    cache = command_line({"compilation_cache": folder / "cache"})

    def peak(program: Sequence[str], beam: int, threads: int, more: Sequence[str] = ()) -> float:
        own = command_line({"beam_size": beam, "cpu_threads": threads})
        return finished([*program, "decode", *words, *own, *more], environment=NO_CACHE).peak / MIB

    for threads in sorted({1, peers.threads}) if peers.programs.pymarian else ():
        name = f"pymarian, {threads} thread{'s'[: threads > 1]}"
        table.row(name, *(peak([peers.programs.pymarian], beam, threads) for beam in beams))
    if peers.programs.ctranslate2_python and options["type"] == "transformer":
        try:
            table.row("CTranslate2", *(_ctranslate2(lines, model, options, peers, b, folder) for b in beams))
        except ProcessError as error:  # it takes no SentencePiece vocabularies
            leave_out("CTranslate2", error)
    own = peers.threads if jax.default_backend() == "cpu" else 0
    for name in ("mgraph", "mgraph, programs from a cache"):
        table.row(name, *(peak(ours, beam, own, cache) for beam in beams))
    shutil.rmtree(folder / "cache", ignore_errors=True)


def _lines(path: Path, longest: int) -> list[str]:
    with path.open(encoding="utf-8") as text:
        lines = [line.rstrip("\n") for line in text if len(line.split()) < longest]
    return sorted(lines[:LINES], key=lambda line: len(line.split()))


def _ctranslate2(
    lines: Sequence[str], model: Path, options: Mapping[str, Any], peers: Peers, beam: int, folder: Path
) -> float:
    """MiB of CTranslate2, which is given the batches one by one, to bound their lengths."""
    size = options["mini_batch"]
    requests: list[dict[str, Any]] = []
    for first in range(0, len(lines), size):
        batch = lines[first : first + size]
        longest = len(batch[-1].split())
        details = {"lines": batch, "batch": size, "beam": beam, "normalize": 0.0, "longest": longest}
        requests.append({"question": "decode", **details})
    path = folder / "requests.jsonl"
    path.write_text("".join(f"{json.dumps(request)}\n" for request in requests))
    python, vocabs = peers.programs.ctranslate2_python, tuple(options["vocabs"])
    with tempfile.TemporaryDirectory(dir=folder) as place:
        peer = CTranslate2(python, str(model), vocabs, Path(place), "float32", 1, peers.threads)
        return finished(peer.serving(), stdin=path).peak / MIB


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, ["transformer-small", "s2s-gru"])
    add_programs(parser)
    parser.add_argument(
        "--threads", type=positive, default=2, help="of the CPU (%(default)s); ours takes a GPU if any"
    )
    parser.add_argument("--updates", type=positive, default=6, help="to train for (%(default)s)")
    parser.add_argument(
        "--beams", type=positive, nargs="+", default=[1, 4], help="to decode with (%(default)s)"
    )
    given = parser.parse_args()
    share_gpu()
    programs = find_programs(given)
    print_machine(
        mini_batch=given.mini_batch,
        updates=given.updates,
        pymarian=programs.pymarian or "none",
        ctranslate2=programs.ctranslate2_python or "none",
    )
    peers = Peers(programs, given.threads)
    started = finished([sys.executable, "-c", "import jax; jax.numpy.zeros(1).block_until_ready()"])
    print(f"Python with JAX started: {started.peak / MIB:.0f} MiB")
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models:
            print(f"\n== {model}\n")
            options = training_options(model, given, Path(folder))
            training(options, peers, given.updates, Path(folder))
            print()
            decoding(options, peers, given.beams, Path(folder))


if __name__ == "__main__":
    main()
