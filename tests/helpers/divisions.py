"""Updates a small model on one device or on groups of devices that divide the parameters; prints the results
and the final state as JSON. The arguments are the model and its division; without arguments, trains with one
division after another and prints what differs from a training on one device.

Runs as a separate process, because the CPU is divided into devices before JAX starts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt import Trainer
from nmt.runtime import devices
from nmt.training.learning.placement import ONE_DEVICE, Placement, SharedPlacement
from tests.helpers.placements import S2S, TRANSFORMER, VOCABS, batch, run

TIED = replace(
    TRANSFORMER,
    dim_vocabs=(32, 32),
    tied_embeddings_all=True,
    dim_emb=16,
    transformer_heads=8,
    transformer_dim_ffn=24,
)
"""Eight devices can divide all of its parameters."""
SSRU = replace(
    TIED,
    dim_vocabs=VOCABS,
    tied_embeddings_all=False,
    transformer_decoder_autoreg="rnn",
    dec_cell="ssru",
    transformer_preprocess="n",
    transformer_postprocess="da",
    transformer_postprocess_top="n",
)
OPTIONS = {"tied": TIED, "ssru": SSRU, "s2s": S2S}
PLACES = {
    ("tied", "1 x 2"): (1, 2, False),
    ("tied", "2 x 2, sharded"): (2, 2, True),
    ("tied", "2 x 4"): (2, 4, False),
    ("tied", "4 x 2, sharded"): (4, 2, True),
    ("ssru", "1 x 4"): (1, 4, False),
    ("s2s", "2 x 2, sharded"): (2, 2, True),
}
"""How models are divided: groups, devices in each, and whether ``--shard-state`` is on, too."""


def updated(model: str, place: str) -> dict[str, Any]:
    """The results of two updates of a model on one device (``alone``) or by a division; for the first model,
    each update has two batches."""
    eight = devices.start_all(1, cpu_devices=8)
    first = measured = model == "tied"
    placement: Placement = ONE_DEVICE
    if place != "alone":
        groups, parts, shard_state = PLACES[model, place]
        used = eight[: groups * parts]
        placement = SharedPlacement(used, shard_state=shard_state, tensor_parallel=parts)
        measured = first and not shard_state
    updates = [[batch(5, 0), batch(5, 1)] if first else [batch(6, 2)]] * 2
    return run(OPTIONS[model], placement, updates, measured=measured)


def resumed(folder: Path) -> dict[str, list[str]]:
    """The arrays in which a training on one device and one that resumes with other divisions differ, by file:
    arrays of different shape, or not close."""
    rng = np.random.default_rng(0)
    texts = [folder / "text.a", folder / "text.b"]
    for text in texts:
        words = rng.choice(["one", "two", "three", "four", "five", "six"], (40, 4))
        text.write_text("".join(" ".join(row) + "\n" for row in words))
    options: dict[str, Any] = {
        "type": "transformer",
        "dim_emb": 16,
        "enc_depth": 1,
        "dec_depth": 1,
        "transformer_heads": 4,
        "transformer_dim_ffn": 24,
        "transformer_dropout": 0.1,
        "train_sets": [str(text) for text in texts],
        "vocabs": [f"{text}.yml" for text in texts],
        "mini_batch": 8,
        "seed": 3,
        "exponential_smoothing": 0.1,
        "optimizer_params": (0.9, 0.98, 0.001),  # a large eps, so that rounding in zero gradients stays small
    }
    one, other = str(folder / "one.npz"), str(folder / "other.npz")
    Trainer(**options, model=one, after_batches=6, cpu_devices=1).train()
    for done, (count, parts) in enumerate([(2, 2), (1, 1), (4, 4)], 1):
        Trainer(
            **options, model=other, after_batches=2 * done, cpu_devices=count, tensor_parallel=parts
        ).train()
    return {end: different(one + end, other + end) for end in ("", ".optimizer.npz")}


def different(one: str, other: str) -> list[str]:
    """The names of arrays that only one of the files has, or else of arrays that differ."""
    with np.load(one) as left, np.load(other) as right:
        if set(left.files) != set(right.files):
            return sorted(set(left.files) ^ set(right.files))
        return [
            name
            for name in left.files
            if left[name].shape != right[name].shape
            or left[name].dtype != right[name].dtype
            or (left[name].dtype == np.float32 and not np.allclose(left[name], right[name], 1e-4, 1e-5))
        ]


def main(*model_and_place: str) -> None:
    if model_and_place:
        print(json.dumps(updated(*model_and_place)))
        return
    devices.start_all(1, cpu_devices=8)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(resumed(Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
