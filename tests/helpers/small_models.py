"""Small models that are quick to make or train."""

from __future__ import annotations

from typing import Any

from nmt import Trainer
from nmt.settings.model_options import ModelOptions
from tests.helpers.places import DATA

TEXT = DATA / "traces" / "text"
TRANSFORMER = ModelOptions(
    type="transformer",
    dim_vocabs=(11, 13),
    dim_emb=8,
    enc_depth=1,
    dec_depth=2,
    transformer_heads=2,
    transformer_dim_ffn=6,
)
S2S = ModelOptions(type="s2s", dim_vocabs=(11, 13), dim_emb=5, dim_rnn=6)


def small_trainer(**options: Any) -> Trainer:
    """The training of a small model on a small text."""
    own: dict[str, Any] = {
        "type": "lm",
        "dim_emb": 4,
        "dim_rnn": 4,
        "cpu_threads": 1,
        "train_sets": [TEXT / "train.german"],
        "vocabs": [TEXT / "german.yml"],
        "mini_batch": 60,
        "max_length": 6,
        "overwrite": True,
    }
    return Trainer(**own | options)
