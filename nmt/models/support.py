"""Which options of Marian's models are supported, so that any other is refused by name."""

from __future__ import annotations

from layers import UnsupportedOptionError, choose
from nmt.models.types import TYPES, ModelType
from nmt.settings.model_options import ModelOptions, check_values

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
    "ulr": False,
    "lemma-dim-emb": 0,
    "lemma-dependency": "",
    "transformer-attention-mask": "default",
    "original-type": "",
}
"""Options that change what a model computes, and the only value of each that is supported yet."""


def check_options(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for the first option that no model here can follow."""
    kind = find_type(options.type)
    streams = len(kind.encoders) + 1
    check_values(options)
    for name, plain in PLAIN.items():
        if name in options and options[name] not in (plain, None):
            raise UnsupportedOptionError(
                f"{name}: {options[name]!r} is not supported yet; there is {plain!r}"
            )
    if any(kind != "sequence" for kind in options.input_types):
        raise UnsupportedOptionError(
            f"input-types: {list(options.input_types)} is not supported yet; there is 'sequence'"
        )
    for name, only in kind.only.items():
        if options[name] != only:
            raise UnsupportedOptionError(
                f"{name}: type {options.type} allows only {only!r}, got {options[name]!r}; type s2s has no"
                " such limit"
            )
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
