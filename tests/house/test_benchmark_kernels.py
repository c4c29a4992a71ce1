"""The profile of updates and translations: kernels are known by the operators that they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.measuring import Child
from benchmarks.measuring.kernels import PRODUCTS, dump_to
from benchmarks.training.text import write_text

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


@pytest.mark.slow
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
    assert 0.3 * found["whole"] < sum(seconds.values()) < found["whole"]
    # Each of the two updates: products of the six layers' weights and attention, forwards and backwards.
    assert counts[PRODUCTS] >= 2 * 3 * 12 and counts[PRODUCTS] % 2 == 0
    named = sum(value for name, value in seconds.items() if not name.startswith("XLA's"))
    assert named > 0.9 * sum(seconds.values())
