"""Marian's model types: which encoders read the sources, which decoder writes the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nmt.models.parts import Decoder, Encoder
from nmt.models.s2s import S2SDecoder, S2SEncoder
from nmt.models.transformer import TransformerDecoder, TransformerEncoder


@dataclass(frozen=True)
class ModelType:
    """The parts of a model type: the encoder of each source stream with the prefix of its parameters, and
    the decoder."""

    encoders: tuple[tuple[type[Encoder], str], ...]
    decoder: type[Decoder]


TYPES: Mapping[str, ModelType] = {
    "s2s": ModelType(((S2SEncoder, "encoder"),), S2SDecoder),
    "multi-s2s": ModelType(((S2SEncoder, "encoder1"), (S2SEncoder, "encoder2")), S2SDecoder),
    "shared-multi-s2s": ModelType(((S2SEncoder, "encoder"), (S2SEncoder, "encoder")), S2SDecoder),
    "lm": ModelType((), S2SDecoder),
    "transformer": ModelType(((TransformerEncoder, "encoder"),), TransformerDecoder),
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
