"""Updates a small model on one device or on several; prints the results and the final state as JSON.
The arguments are the model and the placement.

Runs as a separate process, because the CPU is divided into devices before JAX starts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np

from mgraph import Adagrad, Optax, Optimizer, compile_stats
from nmt.files import create_model
from nmt.models import Dropouts, Model
from nmt.runtime import devices
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import Batch
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import LossOptions, Objective
from nmt.training.learning.placement import ONE_DEVICE, Placement, SharedPlacement
from nmt.training.learning.step import UpdateStep
from nmt.training.update import LearnerState

VOCABS = (24, 28)
LENGTHS = (4, 5)
TRANSFORMER = ModelOptions(
    type="transformer",
    dim_vocabs=VOCABS,
    dim_emb=8,
    enc_depth=1,
    dec_depth=1,
    transformer_heads=2,
    transformer_dim_ffn=12,
    transformer_guided_alignment_layer="1",
)
S2S = ModelOptions(type="s2s", dim_vocabs=VOCABS, dim_emb=8, dim_rnn=8)
ADAGRAD = Adagrad(0.05, eps=1e-3, clip_norm=1.0)
"""Gradients are 1e-4 to 1e-2; a small ``eps`` would enlarge the rounding of those that are nearly zero."""
ADAFACTOR = Optax("adafactor", 0.05, clip_norm=1.0, min_dim_size_to_factor=8, momentum=0.9)
"""Its state has a vector for the rows and one for the columns of a parameter, and scalars."""
MANY = 80
"""How many sentences a batch needs for its words to fill more than one row on each of four devices."""
DROPPED = Dropouts(0.2, 0.2, 0.2, 0.2, 0.2, 0.2)


def batch(rows: int, seed: int) -> Batch:
    """Sentences of different lengths, with weights and alignments; the last target is as short as can be."""
    rng = np.random.default_rng(seed)
    sizes = [rng.integers(1, length + 1, rows) for length in LENGTHS]
    sizes[1][-1] = 1
    masks = [np.float32(np.arange(n) < size[:, None]) for n, size in zip(LENGTHS, sizes, strict=True)]
    ids = [np.int32(rng.integers(2, v, m.shape) * m) for v, m in zip(VOCABS, masks, strict=True)]
    links = np.float32(rng.random((rows, LENGTHS[1], LENGTHS[0])) < 0.3) / 2
    weights = rng.random((rows, LENGTHS[1]), np.float32)
    return Batch(tuple(ids), tuple(masks), rows, weights, links)


def run(
    options: ModelOptions,
    placement: Placement,
    updates: list[list[Batch]],
    optimizer: Optimizer = ADAGRAD,
    *,
    measured: bool = True,
) -> dict:
    """The results of the updates, and the final state.

    measured: also the memory that a large batch needs, and how many programs an update with it compiles.
    """
    created = create_model(options, seed=4)
    model = Model(created.options, created.params, DROPPED)
    objective = Objective(model, LossOptions(0.1, alignment_weight=0.3))
    learner = Learner(objective, UpdateStep(optimizer), seed=7, smoothing=0.2, placement=placement)
    said = [learner.update(group, learn_rate=0.05, number=i + 1) for i, group in enumerate(updates)]
    state = learner.state()
    moments = flat(state)
    learner.restore(replace(state, moments={name: {**tree} for name, tree in state.moments.items()}))
    restored = learner.state()
    result = {
        "costs": [float(result.cost) for result in said],
        "labels": [float(result.labels) for result in said],
        "norms": [float(result.gradient_norm) for result in said],
        "held": learner.held,
        "params": {name: np.ravel(value).tolist() for name, value in state.params.items()},
        "moments": {name: np.ravel(value).tolist() for name, value in moments.items()},
        "average": {name: np.ravel(value).tolist() for name, value in learner.params(smoothed=True).items()},
        "restored": all(
            np.array_equal(one[name], other[name])
            for one, other in (
                (state.params, restored.params),
                (moments, flat(restored)),
                (state.average, restored.average),
            )
            for name in one
        ),
    }
    if measured:
        several = len(updates[0])
        result["memory"] = learner.memory(batch(MANY, 3), last_of_several=several > 1)
        before = compile_stats()
        learner.update([batch(MANY, 3)] * several, learn_rate=0.05, number=len(updates) + 1)
        result["compiled"] = (compile_stats() - before).misses
    return result


def flat(state: LearnerState) -> dict[str, np.ndarray]:
    return {f"{moment} {name}": x for moment, tree in state.moments.items() for name, x in tree.items()}


def main(model: str, where: str) -> None:
    four = devices.start_all(1, cpu_devices=4)
    delayed, alone = [[batch(5, 0), batch(5, 1)]] * 2, [[batch(6, 2)]] * 2
    options, updates = (TRANSFORMER, delayed) if model == "transformer" else (S2S, alone)
    placement: Placement = ONE_DEVICE
    if where != "alone":
        placement = SharedPlacement(four, shard_state=where == "divided")
    print(json.dumps(run(options, placement, updates, ADAFACTOR if model == "optax" else ADAGRAD)))


if __name__ == "__main__":
    main(*sys.argv[1:])
