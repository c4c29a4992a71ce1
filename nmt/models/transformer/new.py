"""The type ``transformer-new``: Marian's transformer written anew, which names parameters by C++ expressions.

In graphs its parameters have the names that those of the type ``transformer`` have. Source: Marian,
``models/transformer_new.h`` and ``layers_new``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layers import UnsupportedOptionError
from nmt.models.names import Arrays, FileNames
from nmt.settings.model_options import ModelOptions

_ENCODER, _DECODER = "TransformerBatchEncoder->encoder", "TransformerBatchDecoder->decoder"
_ENCODER_LAYER = "TransformerEncoderLayer"
_DECODER_LAYER = "TransformerDecoderLayerWithCrossAttention"

_Names = Iterator[tuple[str, str]]
"""Names in files with names in graphs."""


def is_new(options: ModelOptions) -> bool:
    """Whether a model is of the type ``transformer-new``."""
    return options.type == "transformer-new"


def check_new(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for what models of the type ``transformer-new`` cannot be."""
    if options.transformer_decoder_autoreg not in ("self-attention", "rnn"):
        raise _refusal("transformer-decoder-autoreg", options, "'self-attention' and 'rnn'")
    if options.transformer_no_affine:
        raise _refusal("transformer-no-affine", options, "False: Marian on CPU ends with an error")
    if options.transformer_no_bias and options.transformer_decoder_autoreg == "rnn":
        raise _refusal("transformer-no-bias", options, "False where transformer-decoder-autoreg is 'rnn'")
    for name in ("preprocess", "postprocess-emb", "postprocess", "postprocess-top"):
        operations = str(options[f"transformer-{name}"])
        if "h" in operations or operations.count("d") > 1 or len(_norms(operations)) > 1:
            raise _refusal(f"transformer-{name}", options, "each of d and a, and n or r, once at most")


def _refusal(name: str, options: ModelOptions, allowed: str) -> UnsupportedOptionError:
    return UnsupportedOptionError(f"{name}: type transformer-new has {allowed}; got {options[name]!r}")


class NewNames(FileNames):
    """Names by C++ expressions; rows have one axis in files, but those of the output layer."""

    def in_graph(self, items: Arrays, options: ModelOptions) -> dict[str, np.ndarray]:
        names = dict(_names(options))
        return {
            names.get(name, name): array.reshape(1, -1) if name in names and array.ndim == 1 else array
            for name, array in items.items()
        }

    def in_file(self, params: Arrays, options: ModelOptions) -> dict[str, np.ndarray]:
        names = {graph: file for file, graph in _names(options)}
        items = {
            names.get(name, name): array.reshape(-1) if _is_row(name, names, array) else array
            for name, array in params.items()
        }
        return {name: items[name] for name in sorted(items)}


def _is_row(name: str, names: dict[str, str], array: np.ndarray) -> bool:
    return name in names and names[name].endswith(("bias", "norm->weight")) and array.shape[0] == 1


def _names(options: ModelOptions) -> _Names:
    """All names that differ."""
    for stack, prefix in ((_ENCODER, "encoder"), (_DECODER, "decoder")):
        yield f"{stack}->positionEmbedding->embeddings", f"{prefix}_Wpos"
        yield from _norm(
            f"{stack}->preprocessor", f"{prefix}_emb", "_pre", options.transformer_postprocess_emb
        )
        yield from _norm(f"{stack}->postprocessor", f"{prefix}_top", "", options.transformer_postprocess_top)
    for i in range(options.enc_depth):
        layer, prefix = f"{_ENCODER}->{_element(i, _ENCODER_LAYER)}", f"encoder_l{i + 1}"
        yield from _attention(f"{layer}->selfAttentionBlock", "selfAttention", f"{prefix}_self", options)
        yield from _feed_forward(layer, prefix, options, options.transformer_ffn_depth)
    depth = options.transformer_decoder_ffn_depth or options.transformer_ffn_depth
    for i in range(options.dec_depth):
        layer, prefix = f"{_DECODER}->{_element(i, _DECODER_LAYER)}", f"decoder_l{i + 1}"
        first = f"{layer}->autoRegressiveBlock"
        if options.transformer_decoder_autoreg == "rnn":
            yield from _recurrence(first, f"{prefix}_rnn", options)
        else:
            yield from _attention(first, "selfAttention", f"{prefix}_self", options)
        second = f"{layer}->crossAttentionBlock"
        yield from _attention(second, "crossAttention", f"{prefix}_context", options)
        yield from _feed_forward(layer, prefix, options, depth)


def _attention(block: str, attention: str, prefix: str, options: ModelOptions) -> _Names:
    for letter in "qkvo":
        yield from _linear(f"{block}->{attention}->{letter}Proj", prefix, letter)
    yield from _frame(block, f"{prefix}_Wo", f"{prefix}_Wo", options)


def _recurrence(block: str, prefix: str, options: ModelOptions) -> _Names:
    yield f"{block}->rnn->cell->iProj->weight", f"{prefix}_W"
    yield f"{block}->rnn->cell->fProj->weight", f"{prefix}_Wf"
    yield f"{block}->rnn->cell->fProj->bias", f"{prefix}_bf"
    yield from _linear(f"{block}->rnn->oProj", prefix, "o")
    yield from _frame(block, prefix, f"{prefix}_ffn", options)


def _feed_forward(layer: str, prefix: str, options: ModelOptions, depth: int) -> _Names:
    """Affine layers with what lies between them: with relu nothing, else an activation and dropout."""
    block, fused = f"{layer}->filterBlock", options.transformer_ffn_activation == "relu"
    last = max(depth, 2)
    for i in range(1, last + 1):
        kind = "LinearReluDropout" if fused and i < last else "Linear"
        number = (i - 1) * (1 if fused else 3)
        yield from _linear(f"{block}->{_element(number, kind)}", f"{prefix}_ffn", str(i))
    yield from _frame(block, f"{prefix}_ffn_ffn", f"{prefix}_ffn_ffn", options)


def _linear(file: str, prefix: str, suffix: str) -> _Names:
    yield f"{file}->weight", f"{prefix}_W{suffix}"
    yield f"{file}->bias", f"{prefix}_b{suffix}"


def _frame(block: str, before: str, after: str, options: ModelOptions) -> _Names:
    """What comes before and after a block."""
    yield from _norm(f"{block}->preprocessor", before, "_pre", options.transformer_preprocess)
    yield from _norm(f"{block}->postprocessor", after, "", options.transformer_postprocess)


def _norm(file: str, prefix: str, suffix: str, operations: str) -> _Names:
    """The normalization of a string of operations; they have one at most."""
    for letter in _norms(operations):
        kind = {"n": "ln", "r": "rms"}[letter]
        yield f"{file}->norm->weight", f"{prefix}_{kind}_scale{suffix}"
        yield f"{file}->norm->bias", f"{prefix}_{kind}_bias{suffix}"


def _norms(operations: str) -> list[str]:
    return [letter for letter in operations if letter in "nr"]


def _element(number: int, kind: str) -> str:
    return f"layers->at({number})->as<marian::nn::{kind}>()"
