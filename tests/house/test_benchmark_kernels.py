"""The profile of updates and translations: kernels are named after the operators that they come from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measuring import Child
from benchmarks.measuring.kernels import PRODUCTS, dump_to
from benchmarks.training.text import write_text
from tests.helpers.places import ROOT

pytestmark = pytest.mark.optimized

OPTIONS = {
    "type": "transformer",
    "dim_emb": 32,
    "transformer_heads": 2,
    "transformer_dim_ffn": 64,
    "enc_depth": 1,
    "dec_depth": 1,
    "mini_batch": 8,
    "max_length": 100,
    "seed": 1,
    "cpu_threads": 1,
    "compilation_cache": "none",
}


@pytest.mark.thorough
def test_kernels_of_updates(tmp_path: Path) -> None:
    texts, vocabs = write_text(tmp_path, pairs=20)
    options = OPTIONS | {"train_sets": texts, "vocabs": vocabs, "model": str(tmp_path / "none.npz")}
    task = {"trainer": "mgraph", "options": options, "skipped": 0, "updates": 2}
    dumped = tmp_path / "programs"
    child = Child("benchmarks.training.child", json.dumps(task), environment=dump_to(dumped))
    try:
        child.ask("prepare")
        found = child.ask("profile", dumped=str(dumped))
    finally:
        child.close()
    seconds, counts = found["seconds"], found["counts"]
    assert {PRODUCTS, "layer_normalization backwards", "dot_product_attention backwards"} <= set(seconds)
    assert any("Adam" in name for name in seconds)
    assert all(value > 0 for value in seconds.values()) and sum(seconds.values()) < found["whole"]
    # In each of the two updates: products of the six layers' weights and attention, forwards and backwards.
    assert counts[PRODUCTS] >= 2 * 3 * 12 and counts[PRODUCTS] % 2 == 0
    unknown = sum(count for name, count in counts.items() if name.startswith("XLA's"))
    assert unknown < 0.1 * sum(counts.values())


TWO_PROGRAMS = """
import json, sys
from pathlib import Path
import jax, jax.numpy as jnp
from benchmarks.measuring.kernels import profiled

@jax.jit
def few(x):
    return x @ x

@jax.jit
def many(x):
    for number in range(3):
        with jax.named_scope(f"mgraph.sum{number}"):
            x = jnp.tanh(x + jnp.sum(x, 1, keepdims=True))
    return x

x = jnp.ones((96, 96))
def run():
    for _ in range(5):
        jax.block_until_ready((few(x), many(x)))
    return 1.0

run()
print(json.dumps(profiled(run, Path(sys.argv[1]))["counts"]))
"""


def test_kernels_of_two_programs_that_have_the_same_names(tmp_path: Path) -> None:
    environment = {**os.environ, **dump_to(tmp_path), "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", TWO_PROGRAMS, str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    counts = json.loads(run.stdout)
    assert counts[PRODUCTS] == 5, "the only product of the small program"
    assert sum(counts[name] for name in ("sum0", "sum1", "sum2") if name in counts) >= 5
