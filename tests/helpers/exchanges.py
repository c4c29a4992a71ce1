"""Prints as JSON what a small model exchanges on divided CPUs, according to its compiled programs and to
arithmetic. The argument names the model and its division.

Runs as a separate process, because the CPU is divided into devices before JAX starts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import jax

import layers.output
from benchmarks.scaling.exchange import Work, between_groups, within_a_group
from benchmarks.scaling.simulation import compiled, learner
from nmt.runtime import devices
from nmt.settings.model_options import ModelOptions
from nmt.training.learning import division

OPTIONS = ModelOptions(
    type="transformer",
    dim_vocabs=(96, 96),
    dim_emb=32,
    enc_depth=2,
    dec_depth=1,
    transformer_heads=4,
    transformer_dim_ffn=64,
)
RECURRENT = ModelOptions(type="s2s", dim_vocabs=(96, 96), dim_emb=16, dim_rnn=16)
WORDS = {"source": 128, "target": 128}
WORK = {
    "data": Work(OPTIONS, groups=4, **WORDS),
    "recurrent": Work(RECURRENT, groups=4, **WORDS),
    "delayed": Work(OPTIONS, groups=2, parts=2, batches=2, **WORDS),
    "state": Work(OPTIONS, groups=2, shard_state=True, **WORDS),
    "parameters": Work(OPTIONS, parts=2, **WORDS),
    "both": Work(OPTIONS, groups=2, parts=2, shard_state=True, **WORDS),
}
WORK |= dict.fromkeys(("in chunks", "wrong"), WORK["parameters"])


def said(work: Work, used: Sequence[jax.Device]) -> dict[str, Any]:
    programs = compiled(learner(work, used), work)
    return {
        "gradient": programs.gradient,
        "update": programs.update,
        "groups": list(between_groups(work)),
        "parts": [] if work.options is RECURRENT else list(within_a_group(work)),
        "numbers": work.numbers,
    }


def main(name: str) -> None:
    four = devices.start_all(1, cpu_devices=4)
    if name == "in chunks":
        layers.output.MANY_LOGITS = 1
    elif name == "wrong":
        table = division.TABLE
        division.TABLE = tuple(rule._replace(axis=1 if rule.names == "_Wo" else rule.axis) for rule in table)
    print(json.dumps(said(WORK[name], four)))


if __name__ == "__main__":
    main(*sys.argv[1:])
