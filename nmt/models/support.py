"""Which options of Marian's models are supported, so that any other is refused by name."""

from __future__ import annotations

from layers import UnsupportedOptionError, choose
from nmt.model_options import ModelOptions
from nmt.models.types import TYPES, ModelType

MARIAN_TYPES = (
    "amun",
    "nematus",
    "s2s",
    "transformer",
    "transformer-new",
    "transformer_s2s",
    "transformer_nematus",
    "multi-s2s",
    "shared-multi-s2s",
    "multi-transformer",
    "shared-multi-transformer",
    "lm",
    "lm-transformer",
    "char-s2s",
    "bert",
    "bert-classifier",
    "laser",
    "laser-sim",
    "comet-qe",
    "comet",
    "comet-unified",
    "bleurt",
)
"""Marian's values of ``type``."""

PLAIN = {
    "right-left": False,
    "ulr": False,
    "lemma-dim-emb": 0,
    "lemma-dependency": "",
    "transformer-pool": False,
    "transformer-train-positions": False,
    "transformer-disable-position-embeddings": False,
    "transformer-attention-mask": "default",
    "original-type": "",
}
"""Options that change what a model computes, and the only value of each that is supported yet."""

MOST_LAYERS = 256
LARGEST = 1 << 20
BOUNDS = {
    "dim-emb": (1, LARGEST),
    "dim-rnn": (1, LARGEST),
    "enc-depth": (1, MOST_LAYERS),
    "enc-cell-depth": (1, MOST_LAYERS),
    "dec-depth": (1, MOST_LAYERS),
    "dec-cell-base-depth": (1, MOST_LAYERS),
    "dec-cell-high-depth": (1, MOST_LAYERS),
    "transformer-heads": (1, LARGEST),
    "transformer-dim-ffn": (1, LARGEST),
    "transformer-ffn-depth": (1, MOST_LAYERS),
    "transformer-decoder-dim-ffn": (0, LARGEST),
    "transformer-decoder-ffn-depth": (0, MOST_LAYERS),
}
"""The least and the greatest value of sizes: a model file may ask for anything."""


def check_options(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for the first option that no model here can follow."""
    streams = len(find_type(options.type).encoders) + 1
    for name, plain in PLAIN.items():
        if name in options and options[name] not in (plain, None):
            raise UnsupportedOptionError(
                f"{name}: {options[name]!r} is not supported yet; there is {plain!r}"
            )
    if any(kind != "sequence" for kind in options.input_types):
        raise UnsupportedOptionError(
            f"input-types: {list(options.input_types)} is not supported yet; there is 'sequence'"
        )
    for name, (least, greatest) in BOUNDS.items():
        value = options[name]
        if not isinstance(value, int) or not least <= value <= greatest:
            raise UnsupportedOptionError(f"{name}: expected a number from {least} to {greatest}, got {value}")
    sizes = options.dim_vocabs
    if len(sizes) != streams or min(sizes) < 1:
        raise UnsupportedOptionError(
            f"dim-vocabs: expected the sizes of {streams} vocabularies, got {list(sizes)}"
        )
    if (options.tied_embeddings_src or options.tied_embeddings_all) and len(set(sizes)) > 1:
        raise UnsupportedOptionError(
            f"dim-vocabs: one embedding table for all sides needs equal sizes, got {list(sizes)}"
        )


def find_type(name: str) -> ModelType:
    """The parts of a model type; ``UnsupportedOptionError`` if it is unknown or not supported."""
    return choose("type", name, TYPES, MARIAN_TYPES)
