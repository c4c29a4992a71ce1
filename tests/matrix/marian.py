"""Runs real Marian: it trains a row's model, then decodes and scores the test lines."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import corpus
from .row import Row, merged
from .rows import REFUSED, Ensemble
from .transplant import trained_options, transplant

UPDATES = 80
TRAINING = (
    f"--after-batches {UPDATES} --mini-batch 16 --maxi-batch 4 --learn-rate 0.02 --seed 1 --no-shuffle "
    "--cpu-threads 1 --data-threads 1 --workspace 64 --disp-freq 20 --overwrite"
)
ONE_BY_ONE = "--mini-batch 1 --maxi-batch 1 --cpu-threads 1 --workspace 64 --max-length 50"
# Output files, and the options that Marian decodes with.
DECODED = {
    "beam1.txt": "-b 1",
    "beam4.nbest": "-b 4 -n 0.6 --n-best --word-scores",
    "soft.nbest": "-b 4 -n 0.6 --n-best --word-scores --alignment soft",
    "hard.nbest": "-b 4 -n 0.6 --n-best --alignment hard",
}
SCORED = {"score.txt": "--word-scores", "score-soft.txt": "--word-scores --alignment soft"}
# Marian logs what is wrong with a graph before "Error: Aborting".
REASON = re.compile(r"(?:Error: |\] (?=There are more))(.*)")
# If the second file exists, the first adds nothing.
REDUNDANT = {"beam4.nbest": "soft.nbest", "score.txt": "score-soft.txt"}
LANGUAGES = ("english", "dutch")


class MarianRefused(Exception):
    """Marian ended with an error; the message is Marian's."""


def run(command: str, *arguments: str, log: Path, stdin: Path | None = None) -> str:
    """Run ``pymarian COMMAND``, append its log to a file, and return what it prints."""
    words = ["pymarian", command, *arguments]
    with open(stdin or os.devnull, "rb") as given, log.open("a") as errors:
        errors.write(shlex.join(words) + "\n")
        errors.flush()
        done = subprocess.run(
            words,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    if done.returncode:
        said = REASON.search(log.read_text(encoding="utf-8", errors="replace"))
        raise MarianRefused(said[1] if said else f"exit status {done.returncode}")
    return done.stdout.decode("utf-8")


def make_corpus(folder: Path, *lines: int) -> None:
    """Write the text and its vocabularies: one for each language, and a joint one, as plain text.

    lines: the numbers of test lines, see ``corpus.write``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    corpus.write(folder, *lines)
    for language in (*LANGUAGES, "german"):
        text = run("vocab", log=folder / "log", stdin=folder / f"train.{language}")
        (folder / f"{language}.yml").write_text(text, encoding="utf-8")
    together = folder / "train.joint"
    together.write_text("".join((folder / f"train.{name}").read_text() for name in (*LANGUAGES, "german")))
    words = run("vocab", log=folder / "log", stdin=together).splitlines()
    (folder / "joint.txt").write_text("".join(line.rpartition(": ")[0].strip('"') + "\n" for line in words))


def streams(row: Row) -> list[str]:
    """The languages of a row's streams, the target last."""
    return [*LANGUAGES[: row.sources], "german"]


def vocabs(row: Row, texts: Path) -> list[str]:
    """The vocabulary files of a row's streams."""
    return [str(texts / ("joint.txt" if row.joint else f"{name}.yml")) for name in streams(row)]


def read_streams(row: Row) -> list[str]:
    """The languages that the decoder reads.

    For a language model, Marian's decoder prints as many translations as the input has lines, whose words it
    ignores.
    """
    return streams(row)[:-1] or [LANGUAGES[0]]


def decoder_vocabs(row: Row, texts: Path) -> list[str]:
    """The vocabulary files of the streams that the decoder reads, and of the target."""
    return [*([] if row.sources else [str(texts / f"{LANGUAGES[0]}.yml")]), *vocabs(row, texts)]


def train(row: Row, texts: Path, folder: Path) -> None:
    """Train a row's model: FOLDER/model.npz."""
    options = row.options if row.name in REFUSED else trained_options(row.options)
    sets = [str(texts / f"train.{name}") for name in streams(row)]
    guided = ["--guided-alignment", str(texts / "train.alignment")] if "guided" in row.options else []
    arguments = [*shlex.split(merged(f"{TRAINING} {options}")), *guided]
    model = str(folder / "model.npz")
    run("train", "-m", model, "-t", *sets, "-v", *vocabs(row, texts), *arguments, log=folder / "log")
    if options != row.options:
        transplant(folder / "model.npz", row.options)


def _outputs(command: str, wanted: dict[str, str], arguments: Iterable[str], folder: Path) -> None:
    """Write what Marian prints with each set of options to a file, or its error to NAME.refused."""
    for name, options in wanted.items():
        try:
            words = [*arguments, *ONE_BY_ONE.split(), *options.split()]
            printed = run(command, *words, log=folder / f"{name}.log")
            (folder / name).write_text(printed, encoding="utf-8")
        except MarianRefused as error:
            (folder / f"{name}.refused").write_text(f"{error}\n", encoding="utf-8")


def informative(folder: Path, names: Iterable[str]) -> list[str]:
    """The outputs among ``names`` that a row's folder has, without redundant ones."""
    there = [name for name in names if (folder / name).exists()]
    return [name for name in there if REDUNDANT.get(name) not in there]


def make_row(row: Row, texts: Path, folder: Path) -> None:
    """Train a row's model and let Marian decode and score the test lines with it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "options.txt").write_text(row.options + "\n", encoding="utf-8")
    try:
        train(row, texts, folder)
    except MarianRefused as error:
        (folder / "refused.txt").write_text(f"{error}\n", encoding="utf-8")
        return
    tests = [str(texts / f"test.{name}") for name in streams(row)]
    model = ["-m", str(folder / "model.npz")]
    _outputs("score", SCORED, [*model, "-v", *vocabs(row, texts), "-t", *tests], folder)
    tests = [str(texts / f"test.{name}") for name in read_streams(row)]
    _outputs("decode", DECODED, [*model, "-v", *decoder_vocabs(row, texts), "-i", *tests], folder)
    if not informative(folder, {**DECODED, **SCORED}):
        (folder / "score.txt.refused").rename(folder / "refused.txt")


def make_ensemble(ensemble: Ensemble, texts: Path, folder: Path) -> None:
    """Let Marian decode the test lines with several rows' models, whose folders are next to this one."""
    rows = ensemble.members
    folder.mkdir(parents=True, exist_ok=True)
    models = [str(folder.parent / row.name / "model.npz") for row in rows]
    first = max(rows, key=lambda row: row.sources)
    tests = [str(texts / f"test.{name}") for name in read_streams(first)]
    weights = [str(weight) for weight in ensemble.weights]
    arguments = ["-m", *models, "--weights", *weights, "-v", *decoder_vocabs(first, texts), "-i", *tests]
    _outputs("decode", DECODED, arguments, folder)
