"""Updates that devices share: seconds, and memory per device. Run: python benchmarks/parallel.py --devices 4

Rows: one device, all of them with the parameters on each, all of them with the parameters divided. On GPUs
(``--gpu``) more devices are to be faster; devices of a CPU share its cores, there only memory is of interest.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np

from mgraph import Adam
from nmt import devices
from nmt.corpus import TrainingBatch
from nmt.loss import LossOptions
from nmt.model_options import ModelOptions
from nmt.models import create_model
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import Objective
from nmt.training.learning.placement import ONE_DEVICE, SharedPlacement
from nmt.training.learning.step import Step

WORDS = 8000
MIB = 1 << 20


def model_options(dim: int, depth: int) -> ModelOptions:
    return ModelOptions(
        type="transformer",
        dim_vocabs=(WORDS, WORDS),
        dim_emb=dim,
        transformer_dim_ffn=4 * dim,
        enc_depth=depth,
        dec_depth=depth,
        tied_embeddings_all=True,
    )


def batch(rows: int, length: int) -> TrainingBatch:
    ids = np.random.default_rng(0).integers(2, WORDS, (rows, length), np.int32)
    mask = np.ones((rows, length), np.float32)
    return TrainingBatch((ids, ids), (mask, mask), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for option, value in {
        "devices": 2,
        "dim": 128,
        "depth": 2,
        "rows": 32,
        "length": 24,
        "updates": 5,
    }.items():
        parser.add_argument(f"--{option}", type=int, default=value)
    parser.add_argument("--gpu", action="store_true", help="all GPUs instead of devices of the CPU")
    given = parser.parse_args()
    used = devices.start_all(0, ("all",)) if given.gpu else devices.start_all(cpu_devices=given.devices)
    objective = Objective(create_model(model_options(given.dim, given.depth), seed=1), LossOptions(0.1))
    sentences = batch(given.rows, given.length)
    print(f"{len(used)} x {used[0].device_kind}, {given.rows} sentences of {given.length} words")
    print(f"{'placement':12} {'seconds':>8} {'of one':>7} {'state MiB':>10} {'update MiB':>11}")
    placements = {
        "one": ONE_DEVICE,
        "shared": SharedPlacement(used),
        "divided": SharedPlacement(used, shard_state=True),
    }
    reference = 0.0
    for name, placement in placements.items():
        step = Step(Adam(1e-4, clip_norm=1.0))
        learner = Learner(objective, step, seed=1, smoothing=1e-4, placement=placement)
        learner.update([sentences], learn_rate=1e-4, number=1).cost.block_until_ready()
        start = time.perf_counter()
        for number in range(given.updates):
            said = learner.update([sentences], learn_rate=1e-4, number=2 + number)
        jax.block_until_ready(said.cost)
        seconds = (time.perf_counter() - start) / given.updates
        reference = reference or seconds
        state, need = learner.held / MIB, learner.memory(sentences) / MIB
        print(f"{name:12} {seconds:8.3f} {seconds / reference:7.2f} {state:10.1f} {need:11.1f}")


if __name__ == "__main__":
    main()
