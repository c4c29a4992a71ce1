"""Marian's model types, put together from encoders and a decoder."""

from __future__ import annotations

from collections.abc import Mapping

from . import s2s, transformer
from .notation import Block, Either, Part

_SHARED = ("encoder", "encoder")
_OWN = ("encoder1", "encoder2")


def _model(
    name: str, title: str, encoder: Block, prefixes: tuple[str, ...], decoder: Block, context: str | Either
) -> Block:
    sources = [encoder.at(prefix, words=f"dim-vocabs[{i}]") for i, prefix in enumerate(prefixes)]
    last: Part = decoder.at("decoder", sources=len(sources), last=len(sources) - 1, context=context)
    return Block(name, title, parts=(*sources, last))


def _s2s(name: str, title: str, *prefixes: str) -> Block:
    return _model(name, title, s2s.ENCODER, prefixes, s2s.DECODER, s2s.CONTEXT)


def _transformer(name: str, title: str, *prefixes: str) -> Block:
    return _model(name, title, transformer.ENCODER, prefixes, transformer.DECODER, "dim-emb")


TYPES: Mapping[str, Block] = {
    block.name: block
    for block in (
        _s2s("s2s", "recurrent encoder and decoder", "encoder"),
        _s2s("amun", "`s2s`, with the names of Amun in files", "encoder"),
        _s2s("nematus", "`s2s`, with the normalization and, in files, the names of Nematus", "encoder"),
        _s2s("multi-s2s", "recurrent, two sources", *_OWN),
        _s2s("shared-multi-s2s", "recurrent, two sources, one encoder for both", *_SHARED),
        _s2s("lm", "recurrent language model"),
        _transformer("transformer", "transformer encoder and decoder", "encoder"),
        _transformer("transformer-new", "`transformer`, with other names in files", "encoder"),
        _transformer("multi-transformer", "transformer, two sources", *_OWN),
        _transformer("shared-multi-transformer", "transformer, two sources, one encoder for both", *_SHARED),
        _transformer("lm-transformer", "transformer language model"),
        _model(
            "transformer_s2s",
            "transformer encoder, recurrent decoder",
            transformer.ENCODER,
            ("encoder",),
            s2s.DECODER,
            "dim-emb",
        ),
    )
}
"""By the value of Marian's option ``type``."""
