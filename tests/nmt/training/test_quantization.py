"""Students that are fine-tuned for int8: 8-bit integers can represent their matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.files import load_model
from nmt.files.saving import convert_model
from tests.helpers.small_models import TEXT, small_trainer

STUDENT: dict[str, Any] = {
    "type": "transformer",
    "dim_emb": 64,
    "enc_depth": 1,
    "dec_depth": 1,
    "transformer_heads": 2,
    "transformer_dim_ffn": 64,
    "transformer_decoder_autoreg": "rnn",
    "dec_cell": "ssru",
    "tied_embeddings": True,
    "train_sets": [TEXT / "train.english", TEXT / "train.german"],
    "vocabs": [TEXT / "english.yml", TEXT / "german.yml"],
    "learn_rate": 0.01,
}


def off_the_grid(values: np.ndarray) -> float:
    """The largest distance of values from a grid of 127 steps on each side of 0, in steps."""
    steps = np.float64(values) * 127 / np.abs(values).max()
    return float(np.abs(steps - steps.round()).max())


@pytest.mark.slow
def test_a_student_fine_tuned_for_int8_loses_nothing_in_a_file_of_int8(tmp_path: Path) -> None:
    parent, model = tmp_path / "parent.npz", tmp_path / "model.npz"
    small_trainer(**STUDENT, model=parent, after_batches=1).train()
    tuned = {"model": model, "pretrained_model": str(parent), "quantize_bits": 8, "after_batches": 2}
    small_trainer(**STUDENT, **tuned).train()
    before, after = load_model(parent).params, load_model(model).params
    for name, values in after.items():
        assert np.abs(values - before[name]).max() > 1e-3 or name.endswith("_bk"), name
        assert off_the_grid(before[name]) > 0.4 or np.shape(values)[0] == 1, name
        assert (off_the_grid(values) < 1e-3) == (np.shape(values)[0] > 1), name
    for path, lost in ((parent, True), (model, False)):
        convert_model(path, path.with_suffix(".bin"), gemm_type="intgemm8")
        exact, found = load_model(path).params, load_model(path.with_suffix(".bin")).params
        changes = {name: np.abs(found[name] - exact[name]).max() for name in exact}
        assert (max(changes.values()) > 1e-4) == lost
        assert lost or max(changes.values()) < 1e-7
