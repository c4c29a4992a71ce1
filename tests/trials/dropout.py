"""``python -m tests.trials.dropout FOLDER CORPUS``: train with dropout from Marian's start, as Marian does.

Random numbers differ, so the trial compares the validation cross-entropy per word after the same number of
updates, over several seeds: ours should be within 1 % of Marian's. Needs the command pymarian.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
from collections.abc import Iterator
from pathlib import Path

from nmt import Trainer
from nmt.settings import TRAIN
from nmt.settings.config import parse

from ..traces.make import marian

UPDATES = 400
OPTIONS = f"""
--type transformer --dim-emb 64 --enc-depth 2 --dec-depth 2 --transformer-heads 4 --transformer-dim-ffn 128
--tied-embeddings-all --transformer-dropout 0.1 --transformer-dropout-attention 0.1
--transformer-dropout-ffn 0.1
--label-smoothing 0.1 --learn-rate 0.001 --lr-warmup 100 --optimizer-params 0.9 0.98 1e-09 --clip-norm 0
--mini-batch 32 --max-length 60 --after-batches {UPDATES} --overwrite --cpu-threads 1
"""
VALUE = re.compile(r"ce-mean-words : ([\d.]+) :")


def arguments(corpus: Path, seed: int) -> list[str]:
    """The options of a training with this seed, without the model."""
    train, dev, vocab = corpus / "train", corpus / "dev", corpus / "v.joint.yml"
    data = f"--train-sets {train}.de {train}.en --valid-sets {dev}.de {dev}.en --vocabs {vocab} {vocab}"
    validation = f"--valid-metrics ce-mean-words --valid-freq {UPDATES} --valid-max-length 60"
    return shlex.split(f"{OPTIONS} {data} {validation} --seed {seed}")


def start(folder: Path, corpus: Path) -> Path:
    """A model as Marian initializes it."""
    path = folder / "start.npz"
    if not path.exists():
        first = ["--after-batches", "1", "--learn-rate", "0", "--seed", "11"]
        drop = {*first[::2], "--valid-sets", "--valid-metrics", "--valid-freq", "--valid-max-length"}
        marian("train", "--model", str(path), *first, *without(arguments(corpus, 11), drop), folder=folder)
    return path


def without(words: list[str], names: set[str]) -> Iterator[str]:
    """A command line without options of these names."""
    kept = True
    for word in words:
        if word.startswith("--"):
            kept = word not in names
        if kept:
            yield word


def marians(words: list[str], model: Path, begin: Path) -> float:
    """The last validation value of Marian's training."""
    given = ["--model", str(model), "--pretrained-model", str(begin)]
    _, log = marian("train", *given, *words, folder=model.parent)
    return float(VALUE.findall(log)[-1])


def own(words: list[str], model: Path, begin: Path, *more: str) -> float:
    """The last validation value of our training."""
    log = model.with_suffix(".json")
    log.unlink(missing_ok=True)
    given = ["--model", str(model), "--pretrained-model", str(begin), "--log-json", str(log), "--no-reload"]
    Trainer(parse(TRAIN, [*words, *given, *more])).train()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return float([record for record in records if record["kind"] == "valid"][-1]["ce-mean-words"])


def main() -> None:
    """Train with each seed, print a row for each and the ratio of the means."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", type=Path, help="train.de, train.en, dev.de, dev.en and v.joint.yml")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    folder, corpus = given.folder.resolve(), given.corpus.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    begin = start(folder, corpus)
    found: dict[str, list[float]] = {"Marian": [], "mgraph": [], "mgraph --marian-exact": []}
    for seed in range(1, given.seeds + 1):
        words = arguments(corpus, seed)
        found["Marian"].append(marians(words, folder / f"marian.{seed}.npz", begin))
        found["mgraph"].append(own(words, folder / f"right.{seed}.npz", begin))
        exact = own(words, folder / f"exact.{seed}.npz", begin, "--marian-exact")
        found["mgraph --marian-exact"].append(exact)
        row = ", ".join(f"{name} {values[-1]:.5f}" for name, values in found.items())
        print(f"seed {seed}: {row}", flush=True)
    mean = {name: statistics.mean(values) for name, values in found.items()}
    for name, value in mean.items():
        print(f"{name}: mean {value:.5f}, {value / mean['Marian'] - 1:+.2%} against Marian's")


if __name__ == "__main__":
    main()
