"""Curves of trainings: validation cross-entropies per word, in nats, and pictures of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt import Trainer

Curve = list[tuple[int, float]]
"""Numbers of updates, and the cross-entropy after each."""

TRANSFORMER: dict[str, Any] = {
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
"""A model that trains in minutes, on any task."""
EUROPARL: dict[str, Any] = {
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
}
"""Its sizes and schedule for 3,000 sentences of Europarl."""


class Line(NamedTuple):
    """How curves are drawn."""

    name: str
    colour: str


def corpus_data(folder: Path, vocab: str) -> dict[str, Any]:
    """The options for a corpus of train.de, train.en, dev.de and dev.en."""
    train, valid = ([folder / f"{part}.{side}" for side in ("de", "en")] for part in ("train", "dev"))
    return data(train, valid, vocab)


def data(train: Sequence[Any], valid: Sequence[Any], vocab: str) -> dict[str, Any]:
    """The options for these files."""
    return {
        "train_sets": tuple(map(str, train)),
        "valid_sets": tuple(map(str, valid)),
        "vocabs": (vocab, vocab),
    }


def curve(folder: Path, name: str, options: Mapping[str, Any]) -> Curve:
    """The curve of a training, kept in ``folder`` under this name; a training that was finished with the same
    options is not repeated."""
    log, done = folder / f"{name}.json", folder / f"{name}.done"
    given = json.dumps(options, sort_keys=True)
    if not done.exists() or done.read_text() != given:
        for old in (done, log):
            old.unlink(missing_ok=True)
        Trainer(**options, model=str(folder / f"{name}.npz"), no_reload=True, log_json=str(log)).train()
        done.write_text(given)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [(r["update"], r["ce-mean-words"]) for r in records if r["kind"] == "valid"]


def picture(curves: Mapping[Line, Sequence[Curve]], title: str, path: Path) -> None:
    """Write all curves as SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "mgraph"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for line, found in curves.items():
        for number, points in enumerate(found):
            updates, costs = zip(*points, strict=True)
            axes.plot(updates, costs, color=line.colour, linewidth=1, label=None if number else line.name)
    axes.set(title=title, xlabel="updates", ylabel="cross-entropy per word (nats)", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
