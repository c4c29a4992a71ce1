"""Names of parameters in files that differ from those in graphs.

The types ``amun`` and ``nematus`` use Nematus's names. ``transformer-new``, Marian's rewritten transformer,
names parameters by C++ expressions; in graphs they have the names of ``transformer``.
Source: Marian, ``models/amun.h``, ``models/nematus.h``, ``models/transformer_new.h`` and ``layers_new``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from nmt.settings.model_options import ModelOptions

Arrays = Mapping[str, Any]
"""Arrays, or objects with the same ``shape`` and ``ndim``, by name."""

MARK = "decoder_c_tt"
NOT_PARAMETERS = (MARK, "uidx", "history_errs")
"""Items of Nematus's files that are not parameters."""

_GATED = {letter: letter for letter in ("U", "Ux", "W", "Wx", "b", "bx")}
_SECOND = {"U_nl": "U", "Ux_nl": "Ux", "Wc": "W", "Wcx": "Wx", "b_nl": "b", "bx_nl": "bx"}
_INPUTS = ("prev", "lstm", "ctx")
"""The inputs of the layer below the output: word, state, context."""


class FileNames:
    """The names of a model type's parameters in files: by default those in graphs."""

    def in_graph(self, items: Arrays, options: ModelOptions) -> dict[str, Any]:
        """The parameters among the items of a file, under their names in graphs."""
        return dict(items)

    def in_file(self, params: Arrays, options: ModelOptions) -> dict[str, Any]:
        """The inverse: parameters, sorted by their names in graphs, as items in file order."""
        return dict(params)


AS_IN_GRAPHS = FileNames()


class OldNames(FileNames):
    """Nematus's names, from a table of file names to graph names.

    Such files have an empty item ``decoder_c_tt``, and may have rows with one axis; a file without that item
    uses the names in graphs.
    """

    def __init__(self, table: Callable[[ModelOptions], dict[str, str]]) -> None:
        self.table = table

    def in_graph(self, items: Arrays, options: ModelOptions) -> dict[str, Any]:
        if MARK not in items:
            return dict(items)
        names = self.table(options)
        return {
            names.get(name, name): array.reshape(1, -1) if array.ndim == 1 else array
            for name, array in items.items()
            if name not in NOT_PARAMETERS
        }

    def in_file(self, params: Arrays, options: ModelOptions) -> dict[str, Any]:
        names = {graph: file for file, graph in self.table(options).items()}
        items = {names.get(name, name): array for name, array in params.items()}
        return items | {MARK: np.zeros((1, 0), np.float32)}


def amun_names(options: ModelOptions) -> dict[str, str]:
    """File names to graph names of the type ``amun``, where they differ."""
    names = _common(options)
    names |= _cells("encoder_{}", "encoder_bi_{}", {"gamma1": "gamma1", "gamma2": "gamma2"})
    names |= _cells("encoder_r_{}", "encoder_bi_r_{}", {"gamma1": "gamma1", "gamma2": "gamma2"})
    names |= {f"ff_logit_l1_gamma{i}": f"decoder_ff_logit_l1_gamma{i}" for i in range(len(_INPUTS))}
    return names | {"ff_state_gamma": "decoder_ff_state_gamma"}


def nematus_names(options: ModelOptions) -> dict[str, str]:
    """File names to graph names of the type ``nematus``, where they differ."""
    names = _common(options)
    recurrent = {letter: letter for letter in ("U", "Ux", "b", "bx")}
    for i in range(2, options.enc_cell_depth + 1):
        names |= _cells(f"encoder_{{}}_drt_{i - 1}", f"encoder_bi_cell{i}_{{}}", recurrent)
        names |= _cells(f"encoder_r_{{}}_drt_{i - 1}", f"encoder_bi_r_cell{i}_{{}}", recurrent)
    for i in range(3, options.dec_cell_base_depth + 1):
        names |= _cells(f"decoder_{{}}_nl_drt_{i - 2}", f"decoder_cell{i}_{{}}", recurrent)
    cells = {file: graph for file, graph in names.items() if file.startswith(("encoder", "decoder"))}
    for kind in ("lns", "lnb"):
        names |= {f"{file}_{kind}": f"{graph}_{kind}" for file, graph in cells.items()}
    for kind in ("ln_s", "ln_b"):
        names[f"ff_state_{kind}"] = f"decoder_ff_state_{kind}"
        names |= {f"ff_logit_{x}_{kind}": f"decoder_ff_logit_l1_{kind}{i}" for i, x in enumerate(_INPUTS)}
    return names


def _common(options: ModelOptions) -> dict[str, str]:
    """The names shared by both types."""
    names = _cells("decoder_{}", "decoder_cell1_{}", _GATED)
    names |= _cells("decoder_{}", "decoder_cell2_{}", _SECOND)
    names |= _cells("encoder_{}", "encoder_bi_{}", _GATED)
    names |= _cells("encoder_r_{}", "encoder_bi_r_{}", _GATED)
    for letter in ("W", "b"):
        names |= {f"ff_logit_{x}_{letter}": f"decoder_ff_logit_l1_{letter}{i}" for i, x in enumerate(_INPUTS)}
        names[f"ff_logit_{letter}"] = f"decoder_ff_logit_l2_{letter}"
        names[f"ff_state_{letter}"] = f"decoder_ff_state_{letter}"
    names["Wemb_dec"] = "decoder_Wemb"
    if not (options.tied_embeddings_src or options.tied_embeddings_all):
        names["Wemb"] = "encoder_Wemb"
    return names


def _cells(file: str, graph: str, letters: Mapping[str, str]) -> dict[str, str]:
    """The names of one cell's parameters: each letter filled into both patterns."""
    return {file.format(there): graph.format(here) for there, here in letters.items()}


AMUN = OldNames(amun_names)
NEMATUS = OldNames(nematus_names)


_ENCODER, _DECODER = "TransformerBatchEncoder->encoder", "TransformerBatchDecoder->decoder"
_ENCODER_LAYER = "TransformerEncoderLayer"
_DECODER_LAYER = "TransformerDecoderLayerWithCrossAttention"

_Names = Iterator[tuple[str, str]]
"""Pairs of names in files and in graphs."""


class NewNames(FileNames):
    """Names by C++ expressions; rows have one axis in files, except in the output layer.

    table: pairs of names in files and in graphs, where they differ.
    """

    def __init__(self, table: Callable[[ModelOptions], _Names]) -> None:
        self.table = table

    def in_graph(self, items: Arrays, options: ModelOptions) -> dict[str, Any]:
        names = dict(self.table(options))
        return {
            names.get(name, name): array.reshape(1, -1) if name in names and array.ndim == 1 else array
            for name, array in items.items()
        }

    def in_file(self, params: Arrays, options: ModelOptions) -> dict[str, Any]:
        names = {graph: file for file, graph in self.table(options)}
        items = {
            names.get(name, name): array.reshape(-1) if _is_row(name, names, array) else array
            for name, array in params.items()
        }
        return {name: items[name] for name in sorted(items)}


def _is_row(name: str, names: dict[str, str], array: np.ndarray) -> bool:
    ends = "bias", "norm->weight", "encoder->weights", "gamma"
    return name in names and names[name].endswith(ends) and array.shape[0] == 1


def transformer_new_names(options: ModelOptions) -> _Names:
    """File names and graph names of the type ``transformer-new``, where they differ."""
    yield from encoder_names(_ENCODER, "encoder", options)
    yield f"{_DECODER}->positionEmbedding->embeddings", "decoder_Wpos"
    yield from _norms_around(_DECODER, "decoder", options)
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


def encoder_names(stack: str, prefix: str, options: ModelOptions) -> _Names:
    """The names of an encoder's parameters except its word embeddings. stack: the C++ expression of the
    encoder; prefix: of the names in graphs."""
    yield f"{stack}->positionEmbedding->embeddings", f"{prefix}_Wpos"
    yield from _norms_around(stack, prefix, options)
    for i in range(options.enc_depth):
        layer, own = f"{stack}->{_element(i, _ENCODER_LAYER)}", f"{prefix}_l{i + 1}"
        yield from _attention(f"{layer}->selfAttentionBlock", "selfAttention", f"{own}_self", options)
        yield from _feed_forward(layer, own, options, options.transformer_ffn_depth)


def _norms_around(stack: str, prefix: str, options: ModelOptions) -> _Names:
    yield from _norm(f"{stack}->preprocessor", f"{prefix}_emb", "_pre", options.transformer_postprocess_emb)
    yield from _norm(f"{stack}->postprocessor", f"{prefix}_top", "", options.transformer_postprocess_top)


def _attention(block: str, attention: str, prefix: str, options: ModelOptions) -> _Names:
    for letter in "qkvo":
        yield from linear_names(f"{block}->{attention}->{letter}Proj", prefix, letter)
    yield from _frame(block, f"{prefix}_Wo", f"{prefix}_Wo", options)


def _recurrence(block: str, prefix: str, options: ModelOptions) -> _Names:
    yield f"{block}->rnn->cell->iProj->weight", f"{prefix}_W"
    yield f"{block}->rnn->cell->fProj->weight", f"{prefix}_Wf"
    yield f"{block}->rnn->cell->fProj->bias", f"{prefix}_bf"
    yield from linear_names(f"{block}->rnn->oProj", prefix, "o")
    yield from _frame(block, prefix, f"{prefix}_ffn", options)


def _feed_forward(layer: str, prefix: str, options: ModelOptions, depth: int) -> _Names:
    """Numbered layers: relu and dropout are fused into affine layers, other activations are separate."""
    block, fused = f"{layer}->filterBlock", options.transformer_ffn_activation == "relu"
    last = max(depth, 2)
    for i in range(1, last + 1):
        kind = "LinearReluDropout" if fused and i < last else "Linear"
        number = (i - 1) * (1 if fused else 3)
        yield from linear_names(f"{block}->{_element(number, kind)}", f"{prefix}_ffn", str(i))
    yield from _frame(block, f"{prefix}_ffn_ffn", f"{prefix}_ffn_ffn", options)


def linear_names(file: str, prefix: str, suffix: str) -> _Names:
    """The names of an affine layer's weights and biases."""
    yield f"{file}->weight", f"{prefix}_W{suffix}"
    yield f"{file}->bias", f"{prefix}_b{suffix}"


def _frame(block: str, before: str, after: str, options: ModelOptions) -> _Names:
    """The operations before and after a block."""
    yield from _norm(f"{block}->preprocessor", before, "_pre", options.transformer_preprocess)
    yield from _norm(f"{block}->postprocessor", after, "", options.transformer_postprocess)


def _norm(file: str, prefix: str, suffix: str, operations: str) -> _Names:
    """The normalization in a string of operations; it has at most one."""
    for letter in operations:
        if kind := {"n": "ln", "r": "rms"}.get(letter):
            yield f"{file}->norm->weight", f"{prefix}_{kind}_scale{suffix}"
            yield f"{file}->norm->bias", f"{prefix}_{kind}_bias{suffix}"


def _element(number: int, kind: str) -> str:
    """The C++ expression of a layer in a list."""
    return f"layers->at({number})->as<marian::nn::{kind}>()"


TRANSFORMER_NEW = NewNames(transformer_new_names)
