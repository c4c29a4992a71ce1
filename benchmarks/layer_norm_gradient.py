"""Marian's layer norm gradient against the right one, in training.

A transformer is trained twice from the same parameters, on the same batches with the same dropout: once
with the derivative of layer normalization, once with the one that Marian computes (``--marian-exact``). For
each task and seed FOLDER gets the validation cross-entropies, per word in nats; then tables and pictures are
made of them.

Tasks: ``numbers``, English number words to German ones; and, with ``--corpus DIR --vocab FILE``, the files
DIR/train.de, train.en, dev.de and dev.en. What has been trained already is not trained again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measuring import positive
from nmt import Trainer
from nmt.numbers import corpus

RULES = {"right": False, "marian": True}
COLOURS = {"right": "#2a6fbb", "marian": "#c2571a"}
COMMON: dict[str, Any] = {
    "type": "transformer",
    "enc_depth": 3,
    "dec_depth": 3,
    "transformer_heads": 4,
    "transformer_dropout": 0.1,
    "label_smoothing": 0.1,
    "tied_embeddings_all": True,
    "optimizer_params": (0.9, 0.98, 1e-9),
    "clip_norm": 0,
    "valid_metrics": ("ce-mean-words",),
    "disp_freq": "50u",
    "overwrite": True,
}
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
    "corpus": {
        "dim_emb": 128,
        "transformer_dim_ffn": 512,
        "mini_batch": 32,
        "learn_rate": 0.001,
        "lr_warmup": "200",
        "lr_decay_inv_sqrt": ("200",),
        "after_batches": 600,
        "valid_freq": "50u",
        "max_length": 60,
        "valid_max_length": 60,
    },
}


def numbers_data(folder: Path) -> dict[str, Any]:
    """Training and held-out numbers, and their vocabulary."""
    train = corpus.write(corpus.training(12000), folder / "train")
    valid = corpus.write(corpus.heldout(500), folder / "valid")
    vocab = folder / "numbers.spm"
    if not vocab.exists():
        corpus.train_vocabulary(list(train), vocab)
    return _data(train, valid, str(vocab))


def corpus_data(prefix: Path, vocab: str) -> dict[str, Any]:
    """The files of a German-English corpus."""
    train, valid = ([prefix / f"{part}.{side}" for side in ("de", "en")] for part in ("train", "dev"))
    return _data(train, valid, vocab)


def _data(train: Any, valid: Any, vocab: str) -> dict[str, Any]:
    return {
        "train_sets": tuple(map(str, train)),
        "valid_sets": tuple(map(str, valid)),
        "vocabs": (vocab, vocab),
    }


def curve(folder: Path, options: Mapping[str, Any], rule: str, seed: int) -> list[tuple[int, float]]:
    """(update, validation cross-entropy per word) of one training."""
    log = folder / f"{rule}.{seed}.json"
    done = folder / f"{rule}.{seed}.done"
    if not done.exists():
        log.unlink(missing_ok=True)
        model = str(folder / f"{rule}.{seed}.npz")
        trainer = Trainer(
            **options, model=model, no_reload=True, seed=seed, marian_exact=RULES[rule], log_json=str(log)
        )
        trainer.train()
        done.touch()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [(r["update"], r["ce-mean-words"]) for r in records if r["kind"] == "valid"]


def table(curves: Mapping[str, list[list[tuple[int, float]]]]) -> str:
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


def picture(curves: Mapping[str, list[list[tuple[int, float]]]], title: str, path: Path) -> None:
    """All curves, those of one rule in one colour."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "mgraph"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for rule, name in (("marian", "Marian's gradient"), ("right", "right gradient")):
        for number, points in enumerate(curves[rule]):
            updates, costs = zip(*points, strict=True)
            axes.plot(updates, costs, color=COLOURS[rule], linewidth=1, label=None if number else name)
    axes.set(title=title, xlabel="updates", ylabel="cross-entropy per word (nats)", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


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
        data = numbers_data(folder) if task == "numbers" else corpus_data(arguments.corpus, arguments.vocab)
        options = {**COMMON, **TASKS[task], **data}
        if arguments.updates:
            options["after_batches"] = arguments.updates
        curves: dict[str, list[list[tuple[int, float]]]] = {rule: [] for rule in RULES}
        for seed in range(1, arguments.seeds + 1):
            for rule in RULES:
                curves[rule].append(curve(folder, options, rule, seed))
                print(f"{task}: {rule} gradient, seed {seed}: {curves[rule][-1][-1][1]:.4f}", file=sys.stderr)
        print(f"\n{task}, {arguments.seeds} seeds\n\n{table(curves)}")
        picture(curves, task, arguments.folder / f"{task}.svg")


if __name__ == "__main__":
    main()
