"""Marian's model types: their parts, and the supported options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from layers import UnsupportedOptionError, choose
from nmt.models.names import AMUN, AS_IN_GRAPHS, NEMATUS, TRANSFORMER_NEW, FileNames
from nmt.models.parts import DecoderPart, EncoderPart, Setup
from nmt.models.s2s import S2SDecoder, S2SEncoder
from nmt.models.transformer import TransformerDecoder, TransformerEncoder
from nmt.settings.absent import NO_LEMMA_DEPENDENCY, NO_ULR
from nmt.settings.model_options import OPTIONS, ModelOptions, Value, check_values


@dataclass(frozen=True)
class ModelType:
    """The parts of a model type.

    encoders: the encoder of each source stream, with the prefix of its parameters.
    only: options for which the type allows one value. names: of the parameters in files.
    """

    encoders: tuple[tuple[type[EncoderPart], str], ...]
    decoder: Callable[[Setup, str, Sequence[int]], DecoderPart]
    only: Mapping[str, Value] = field(default_factory=dict)
    names: FileNames = AS_IN_GRAPHS


ONLY_AMUN: Mapping[str, Value] = {
    "enc-depth": 1,
    "enc-cell-depth": 1,
    "skip": False,
    "dec-depth": 1,
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "enc-cell": "gru",
    "dec-cell": "gru",
}
ONLY_NEMATUS: Mapping[str, Value] = {
    "enc-type": "bidirectional",
    "enc-cell": "gru-nematus",
    "dec-cell": "gru-nematus",
    "dec-cell-high-depth": 1,
}
TYPES: Mapping[str, ModelType] = {
    "amun": ModelType(((S2SEncoder, "encoder"),), S2SDecoder, ONLY_AMUN, AMUN),
    "nematus": ModelType(((S2SEncoder, "encoder"),), S2SDecoder, ONLY_NEMATUS, NEMATUS),
    "s2s": ModelType(((S2SEncoder, "encoder"),), S2SDecoder),
    "multi-s2s": ModelType(((S2SEncoder, "encoder1"), (S2SEncoder, "encoder2")), S2SDecoder),
    "shared-multi-s2s": ModelType(((S2SEncoder, "encoder"), (S2SEncoder, "encoder")), S2SDecoder),
    "lm": ModelType((), S2SDecoder),
    "transformer": ModelType(((TransformerEncoder, "encoder"),), TransformerDecoder),
    "transformer-new": ModelType(
        ((TransformerEncoder, "encoder"),), TransformerDecoder, names=TRANSFORMER_NEW
    ),
    "multi-transformer": ModelType(
        ((TransformerEncoder, "encoder1"), (TransformerEncoder, "encoder2")), TransformerDecoder
    ),
    "shared-multi-transformer": ModelType(
        ((TransformerEncoder, "encoder"), (TransformerEncoder, "encoder")), TransformerDecoder
    ),
    "lm-transformer": ModelType((), TransformerDecoder),
    "transformer_s2s": ModelType(((TransformerEncoder, "encoder"),), S2SDecoder),
}
"""By the value of Marian's option ``type``."""

PLAIN: Mapping[str, tuple[Value, str]] = {
    "ulr": (False, NO_ULR),
    "lemma-dim-emb": (0, NO_LEMMA_DEPENDENCY),
    "lemma-dependency": ("", NO_LEMMA_DEPENDENCY),
    "original-type": ("", "a model has one type, which the option type says"),
}
"""Options that change what a model computes: their only supported value, and the reason."""


def check_options(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for the first unsupported option."""
    kind = find_type(options.type)
    streams = len(kind.encoders) + 1
    check_values(options)
    check_plain(options)
    types = options.stream_types
    if types and len(types) != streams:
        raise UnsupportedOptionError(
            f"input-types: expected one for each of {streams} streams, got {' '.join(types)}"
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


def check_plain(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for the first option of ``PLAIN`` with another value."""
    for name, (plain, reason) in PLAIN.items():
        if name in options and options[name] not in (plain, None):
            raise UnsupportedOptionError(f"{name}: {options[name]!r} is not supported: {reason}")


def find_type(name: str) -> ModelType:
    """The parts of a model type; ``UnsupportedOptionError`` if it is unknown or not supported."""
    return choose("type", name, TYPES, OPTIONS["type"].absent)
