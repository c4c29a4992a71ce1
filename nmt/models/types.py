"""Marian's model types: which encoders read the sources, which decoder writes the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nmt.models.names import AMUN, AS_IN_GRAPHS, NEMATUS, FileNames
from nmt.models.parts import DecoderPart, EncoderPart, Setup
from nmt.models.s2s import S2SDecoder, S2SEncoder
from nmt.models.transformer import NewNames, TransformerDecoder, TransformerEncoder
from nmt.settings.model_options import Value


@dataclass(frozen=True)
class ModelType:
    """What a model type is put together from.

    encoders: the encoder of each source stream, with the prefix of its parameters.
    only: options of which the type allows one value.
    names: how files name the parameters.
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
    "transformer-new": ModelType(((TransformerEncoder, "encoder"),), TransformerDecoder, names=NewNames()),
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
