"""Makes Marian's references: the text, the models to start from, and what Marian prints and saves per row."""

from __future__ import annotations

import io
import os
import random
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import sentencepiece

from mgraph.files.items import read_npz, write_npz
from tests.matrix.row import merged

from . import corpus
from .row import Row, Start
from .trace import changes, kept

FIRST_UPDATES = (
    "--after-batches 25 --learn-rate 0.01 --mini-batch 16 --maxi-batch 4 --shuffle none --seed 1 "
    "--clip-norm 1"
)
QUIET = "--cpu-threads 1 --workspace 64 --overwrite"
WORDS, PIECES, VECTOR = 24, 60, 8


class MarianRefused(Exception):
    """Marian ended with an error; the message is Marian's."""


def marian(command: str, *arguments: str, folder: Path, stdin: Path | None = None) -> tuple[str, str]:
    """Run ``pymarian COMMAND`` in a folder; return what it prints, and its log."""
    with open(stdin or os.devnull, "rb") as given:
        done = subprocess.run(
            ["pymarian", command, *arguments],
            cwd=folder,
            stdin=given,
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "rror" in line or "bort" in line]
        raise MarianRefused(said[0] if said else f"exit status {done.returncode}: {done.stderr[-500:]}")
    return done.stdout, done.stderr


def make_text(folder: Path) -> None:
    """Write the text, its vocabularies of words and of pieces, and word vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus.write(folder)
    languages = ("english", "dutch", "german")
    together = folder / "train.joint"
    together.write_text("".join((folder / f"train.{name}").read_text() for name in languages))
    for name, size in (*((name, WORDS) for name in languages), ("joint", 2 * WORDS)):
        text, _ = marian("vocab", "--max-size", str(size), folder=folder, stdin=folder / f"train.{name}")
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")
    pieces = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(together.read_text().splitlines()),
        model_writer=pieces,
        model_type="bpe",
        vocab_size=PIECES,
        normalization_rule_name="identity",
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        minloglevel=2,
    )
    (folder / "joint.spm").write_bytes(pieces.getvalue())
    together.unlink()
    generator = random.Random(7)
    for name in ("english", "german"):
        vectors = {number: [generator.gauss(0, 0.3) for _ in range(VECTOR)] for number in range(WORDS)}
        rows = [" ".join([str(number), *(f"{x:.4f}" for x in row)]) for number, row in vectors.items()]
        text = "\n".join([f"{len(rows)} {VECTOR}", *rows, ""])
        (folder / f"vectors.{name}").write_text(text)


def make_start(start: Start, texts: Path, path: Path) -> None:
    """Train a model briefly, so that nothing in it is zero or one; save it without what a start lacks."""
    sets = [f"train.{stream}" for stream in start.streams]
    options = shlex.split(merged(f"{FIRST_UPDATES} {QUIET} {start.options}"))
    work = path.with_suffix("")
    work.mkdir(parents=True, exist_ok=True)
    model = work / "model.npz"
    marian("train", "-m", str(model), "-t", *sets, "-v", *start.vocabs, *options, folder=texts)
    items = read_npz(model)
    write_npz(path, {name: value for name, value in items.items() if not name.endswith(start.lacking)})
    shutil.rmtree(work)


def train(row: Row, texts: Path, start: Path, work: Path, *more: str) -> tuple[list[str], Path]:
    """Train a row in its own folder; return the lines of its updates, and the model."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    model = work / "model.npz"
    options = merged(shlex.join([*row.arguments, *QUIET.split(), *more]))
    given = ["-m", str(model), "--pretrained-model", str(start), *shlex.split(options)]
    _, log = marian("train", *given, folder=texts)
    (work / "log").write_text(log, encoding="utf-8")
    return kept(log.splitlines()), model


def make(folder: Path, rows: Iterable[Row]) -> None:
    """Make these rows, with the text and the models that they start from.

    If Marian refuses a row, ROW/refused.txt gets the reason.
    """
    make_text(folder / "text")
    made = set[Start]()
    for row in rows:
        own = folder / row.name
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
        try:
            _make_row(row, folder.resolve(), made)
        except MarianRefused as error:
            (own / "refused.txt").write_text(f"{error}\n", encoding="utf-8")
        print(row.name, flush=True)


def _make_row(row: Row, folder: Path, made: set[Start]) -> None:
    """Make a row, and the model that it starts from unless it is among those ``made``."""
    texts, own, start = folder / "text", folder / row.name, folder / "starts" / f"{row.start.name}.npz"
    if row.start not in made:
        make_start(row.start, texts, start)
        made.add(row.start)
    lines, model = train(row, texts, start, own / "work")
    (own / "log.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    np.save(own / "changes.npy", changes(read_npz(start), read_npz(model)))
    shutil.rmtree(own / "work")
