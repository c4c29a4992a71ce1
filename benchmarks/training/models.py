"""The models to train, as Marian's options, and the options that all trainings share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measuring import positive
from benchmarks.training.text import PAIRS, WORDS, write_text

MODELS: dict[str, dict[str, Any]] = {
    "transformer-small": {
        "type": "transformer",
        "dim_emb": 256,
        "transformer_heads": 8,
        "transformer_dim_ffn": 1024,
        "enc_depth": 3,
        "dec_depth": 3,
    },
    "transformer-base": {
        "type": "transformer",
        "dim_emb": 512,
        "transformer_heads": 8,
        "transformer_dim_ffn": 2048,
        "enc_depth": 6,
        "dec_depth": 6,
    },
    "transformer-big": {
        "type": "transformer",
        "dim_emb": 1024,
        "transformer_heads": 16,
        "transformer_dim_ffn": 4096,
        "enc_depth": 6,
        "dec_depth": 6,
    },
    "s2s-gru": {"type": "s2s", "dim_emb": 256, "dim_rnn": 512},
    "deep-lstm": {
        "type": "s2s",
        "dim_emb": 256,
        "dim_rnn": 512,
        "enc_cell": "lstm",
        "dec_cell": "lstm",
        "enc_depth": 2,
        "dec_depth": 2,
        "enc_cell_depth": 2,
        "dec_cell_base_depth": 4,
        "dec_cell_high_depth": 2,
    },
}
LEARN_RATE = 0.0003
NO_CACHE = {"JAX_COMPILATION_CACHE_DIR": ""}
"""Variables for a process that is given its own compilation cache: JAX's would take precedence."""


def add_options(parser: argparse.ArgumentParser, default: list[str]) -> None:
    """The options that say what is trained."""
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=default, help="what is trained (%(default)s)"
    )
    parser.add_argument(
        "--train-sets",
        nargs=2,
        metavar=("SRC", "TRG"),
        help="a corpus (a made one, its lengths as in Europarl)",
    )
    parser.add_argument("--vocabs", nargs=2, metavar=("SRC", "TRG"), help="its vocabularies")
    parser.add_argument("--pairs", type=positive, default=PAIRS, help="of a made corpus (%(default)s)")
    parser.add_argument(
        "--words", type=positive, default=WORDS, help="in each vocabulary of a made corpus (%(default)s)"
    )
    parser.add_argument("--mini-batch", type=positive, default=64, help="sentences in a batch (%(default)s)")
    parser.add_argument(
        "--max-length", type=positive, default=100, help="most words of a sentence (%(default)s)"
    )


def training_options(model: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The options of ``mgraph train`` and of ``marian train`` for a model, by attribute name.

    given: the parsed options of ``add_options``. folder: where a text is made if none was given.
    """
    if bool(given.train_sets) != bool(given.vocabs):
        raise SystemExit("--train-sets and --vocabs: expected both or none")
    texts, vocabs = given.train_sets, given.vocabs
    if not texts:
        texts, vocabs = write_text(folder, given.pairs, given.words)
    return {
        **MODELS[model],
        "train_sets": tuple(map(str, texts)),
        "vocabs": tuple(map(str, vocabs)),
        "mini_batch": given.mini_batch,
        "maxi_batch": 100,
        "max_length": given.max_length,
        "learn_rate": LEARN_RATE,
        "seed": 1,
        "shuffle_in_ram": True,
    }


def command_line(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command."""
    words: list[str] = []
    for name, value in options.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words += map(str, value) if isinstance(value, tuple) else [str(value)]
    return words
