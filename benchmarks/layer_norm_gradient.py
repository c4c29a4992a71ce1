"""Marian's layer norm gradient against the right one, in training.

A transformer is trained twice from the same parameters, on the same batches with the same dropout: once
with the derivative of layer normalization, once with the one that Marian computes (``--marian-exact``). For
each task and seed FOLDER gets the validation cross-entropies, per word in nats; then tables and pictures are
made of them.

Tasks: ``numbers``, English number words to German ones; and, with ``--corpus DIR --vocab FILE``, the files
DIR/train.de, train.en, dev.de and dev.en. Finished trainings are not repeated, unless their options have
changed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measuring import positive
from benchmarks.training.curves import EUROPARL, TRANSFORMER, Curve, Line, corpus_data, curve, data, picture
from nmt.numbers import corpus

RULES = {"right": False, "marian": True}
LINES = {"marian": Line("Marian's gradient", "#c2571a"), "right": Line("right gradient", "#2a6fbb")}
TASKS: dict[str, dict[str, Any]] = {
    "numbers": {
        "dim_emb": 64,
        "transformer_dim_ffn": 256,
        "mini_batch": 64,
        "learn_rate": 0.002,
        "lr_warmup": "100",
        "lr_decay_inv_sqrt": ("200",),
        "after_batches": 600,
        "valid_freq": "50u",
    },
    "corpus": EUROPARL,
}


def numbers_data(folder: Path) -> dict[str, Any]:
    """Training and held-out numbers, and their vocabulary."""
    train = corpus.write(corpus.training(12000), folder / "train")
    valid = corpus.write(corpus.heldout(500), folder / "valid")
    vocab = folder / "numbers.spm"
    if not vocab.exists():
        corpus.train_vocabulary(list(train), vocab)
    return data(train, valid, str(vocab))


def table(curves: Mapping[str, list[Curve]]) -> str:
    """Means over the seeds by update, their difference, and how often the right gradient is better."""
    lines = [
        "| update | right | Marian's | right - Marian's | lowest and highest difference | right is better |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    seeds = len(curves["right"])
    for step in range(len(curves["right"][0])):
        update = curves["right"][0][step][0]
        right, marian = ([curve[step][1] for curve in curves[rule]] for rule in RULES)
        gaps = [a - b for a, b in zip(right, marian, strict=True)]
        wins = sum(gap < 0 for gap in gaps)
        lines.append(
            f"| {update} | {statistics.mean(right):.4f} | {statistics.mean(marian):.4f} "
            f"| {statistics.mean(gaps):+.4f} | {min(gaps):+.4f}, {max(gaps):+.4f} | {wins} of {seeds} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, print the tables, write the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=positive, default=5, help="trainings of each kind")
    parser.add_argument("--corpus", type=Path, help="folder of train.de, train.en, dev.de, dev.en")
    parser.add_argument("--vocab", help="the vocabulary of both sides of the corpus")
    parser.add_argument("--updates", type=positive, help="how long to train, in place of what a task says")
    arguments = parser.parse_args()
    if arguments.corpus and not (arguments.vocab and (arguments.corpus / "train.de").is_file()):
        parser.error("--corpus: expected a folder with train.de, and its --vocab")
    tasks = ["numbers", "corpus"] if arguments.corpus else ["numbers"]
    for task in tasks:
        folder = arguments.folder / task
        folder.mkdir(parents=True, exist_ok=True)
        texts = numbers_data(folder) if task == "numbers" else corpus_data(arguments.corpus, arguments.vocab)
        options = {**TRANSFORMER, **TASKS[task], **texts}
        if arguments.updates:
            options["after_batches"] = arguments.updates
        curves: dict[str, list[Curve]] = {rule: [] for rule in RULES}
        for seed in range(1, arguments.seeds + 1):
            for rule, exact in RULES.items():
                given = {**options, "seed": seed, "marian_exact": exact}
                curves[rule].append(curve(folder, f"{rule}.{seed}", given))
                print(f"{task}: {rule} gradient, seed {seed}: {curves[rule][-1][-1][1]:.4f}", file=sys.stderr)
        print(f"\n{task}, {arguments.seeds} seeds\n\n{table(curves)}")
        drawn = {line: curves[rule] for rule, line in LINES.items()}
        picture(drawn, task, arguments.folder / f"{task}.svg")


if __name__ == "__main__":
    main()
