"""Convert Marian's models to checkpoints of HuggingFace's MarianMT, and back.

Marian stores the matrix of ``x W`` as ``(in, out)`` and vectors as ``(1, out)``, PyTorch as ``(out, in)`` and
``(out,)``. Embedding tables have the same layout in both.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from mgraph import Type
from mgraph.files.parameter_files import Path, load_parameters
from mgraph.inits import sinusoidal_position_embeddings
from nmt.files.huggingface.configuration import (
    MAX_POSITIONS,
    MODEL_YML_KEY,
    ConversionError,
    Sizes,
    config_of,
    options_of,
    says_the_same,
    size,
    tying,
)
from nmt.files.loading import check_parameters
from nmt.models.model import Model
from nmt.settings.model_options import ModelOptions, parse_model_options, yaml_of

logger = logging.getLogger(__name__)

PAD_LOGIT = -1e4
"""The bias of ids that are not words: low enough to keep Marian's probabilities, yet within float16."""
# Above bfloat16's rounding error for values up to 1, far below the difference of the two kinds of positions.
_SAME_POSITIONS = 3e-3


class Kind(Enum):
    """The conversion of an array, either way."""

    MATRIX = "transposed"
    VECTOR = "(1, n) to (n)"
    SAME = "as it is"

    def to_huggingface(self, array: np.ndarray) -> np.ndarray:
        """Marian's ``array`` in HuggingFace's layout."""
        if self is Kind.VECTOR:
            return array.reshape(-1)
        return np.ascontiguousarray(array.T) if self is Kind.MATRIX else array

    def to_marian(self, array: np.ndarray) -> np.ndarray:
        """HuggingFace's ``array`` in Marian's layout."""
        return array.reshape(1, -1) if self is Kind.VECTOR else self.to_huggingface(array)


class Name(NamedTuple):
    """A parameter's name in Marian and in HuggingFace."""

    marian: str
    huggingface: str
    kind: Kind


def _attention(marian: str, huggingface: str) -> tuple[Name, ...]:
    projections = (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj"))
    return (
        *(Name(f"{marian}_W{x}", f"{huggingface}.{y}.weight", Kind.MATRIX) for x, y in projections),
        *(Name(f"{marian}_b{x}", f"{huggingface}.{y}.bias", Kind.VECTOR) for x, y in projections),
        Name(f"{marian}_Wo_ln_scale", f"{huggingface}_layer_norm.weight", Kind.VECTOR),
        Name(f"{marian}_Wo_ln_bias", f"{huggingface}_layer_norm.bias", Kind.VECTOR),
    )


SELF_ATTENTION = _attention("self", "self_attn")
CROSS_ATTENTION = _attention("context", "encoder_attn")
FEED_FORWARD = (
    Name("ffn_W1", "fc1.weight", Kind.MATRIX),
    Name("ffn_b1", "fc1.bias", Kind.VECTOR),
    Name("ffn_W2", "fc2.weight", Kind.MATRIX),
    Name("ffn_b2", "fc2.bias", Kind.VECTOR),
    Name("ffn_ffn_ln_scale", "final_layer_norm.weight", Kind.VECTOR),
    Name("ffn_ffn_ln_bias", "final_layer_norm.bias", Kind.VECTOR),
)
LAYERS = {
    "encoder": (*SELF_ATTENTION, *FEED_FORWARD),
    "decoder": (*SELF_ATTENTION, *CROSS_ATTENTION, *FEED_FORWARD),
}
"""The parameters of one layer. Marian counts layers from 1, HuggingFace from 0."""

SHARED = "model.shared.weight"
TABLES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
MARIAN_SHARED = "Wemb"
MARIAN_TABLES = ("encoder_Wemb", "decoder_Wemb")
MARIAN_OUTPUT, MARIAN_BIAS = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_b"
MARIAN_OLD_OUTPUT = "decoder_ff_logit_out_W"
"""The transposed output matrix in files of old versions of Marian."""


def layer_names(stack: str, depth: int) -> Iterator[Name]:
    """The parameters of the layers of ``stack``, ``encoder`` or ``decoder``, with their full names."""
    for number in range(depth):
        for name in LAYERS[stack]:
            yield Name(
                f"{stack}_l{number + 1}_{name.marian}",
                f"model.{stack}.layers.{number}.{name.huggingface}",
                name.kind,
            )


class TorchCheckpoint(NamedTuple):
    """``config.json`` as a dictionary, and arrays by the names of ``MarianMTModel.state_dict()``."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]


class MarianModel(NamedTuple):
    """Parameters under Marian's names, and the text of ``special:model.yml``."""

    parameters: dict[str, np.ndarray]
    text: str


def to_huggingface(path: Path, *, eos_id: int = 0) -> TorchCheckpoint:
    """The Marian model in the file ``path`` as a checkpoint that ``MarianMTModel`` loads; a ``Model`` in
    memory is saved first (``save_model``).

    ``eos_id`` is the id of ``</s>``. Tables are padded with zeros up to ``<pad>``, the id after both
    vocabularies; the decoder starts with it, as Marian's starts with zeros. Its low logit keeps Marian's
    probabilities. Marian's positions are included, because HuggingFace's differ a little.
    ``UnsupportedOptionError`` for what HuggingFace cannot represent; ``ConversionError`` for a file without
    options, ``ParameterError`` if its parameters do not fit them.
    """
    params, text = load_parameters(path, Type.float32)
    if text is None:
        raise ConversionError(f"{path}: no special:model.yml; expected a model that carries its options")
    options = parse_model_options(text, str(path))
    config = config_of(options, eos_id)
    check_parameters(Model(options, params))
    rows = config["vocab_size"]
    tied_source, tied_output = tying(options)
    source, target = (params[MARIAN_SHARED if tied_source else name] for name in MARIAN_TABLES)
    tables = [_padded(table, rows) for table in (source, target)]
    tensors = dict(zip(TABLES, tables, strict=True))
    if tied_source:
        tensors[SHARED] = tensors[TABLES[1]] = tables[0]
    tensors[OUTPUT] = tensors[TABLES[1]] if tied_output else _padded(_output_table(params), rows)
    bias = params.get(MARIAN_BIAS, np.zeros((1, options.dim_vocabs[1]), np.float32))
    tensors[BIAS] = _padded(bias.T, rows, PAD_LOGIT).T
    tensors.update(dict.fromkeys(POSITIONS, marian_positions(MAX_POSITIONS, options.dim_emb)))
    for name in _layers(options):
        tensors[name.huggingface] = name.kind.to_huggingface(params[name.marian])
    return TorchCheckpoint(config, tensors)


def from_huggingface(
    config: Mapping[str, Any], tensors: Mapping[str, Any], *, zero_start: bool = False
) -> MarianModel:
    """The Marian model of a checkpoint: ``model.config.to_dict()`` and ``model.state_dict()``.

    ``tensors`` are arrays or PyTorch tensors. ``<pad>`` is dropped if it is the last row and starts the
    decoder; otherwise it stays a word, so that no id changes. A configuration that came from Marian is
    restored if it still fits.

    Marian starts its decoder with zeros; a checkpoint with another start row, as after training with
    HuggingFace, is rejected unless ``zero_start`` drops that row. A warning reports positions that differ
    from Marian's. ``ConversionError`` names what is missing or not representable in Marian.
    """
    arrays = _Arrays(tensors)
    source, target = map(arrays.table, _table_names(config))
    tied_source = _are_tied(config, "share_encoder_decoder_embeddings", source, target)
    output = arrays.found.get(OUTPUT, target)
    tied_output = _are_tied(config, "tie_word_embeddings", target, output)
    _check_start(config, target, zero_start)
    _check_positions(arrays)
    options = _options(config, source, target, Sizes((0, 0), tied_source, tied_output))
    _check_layers(arrays, options)
    rows, target_rows = options.dim_vocabs
    params: dict[str, np.ndarray] = {}
    if tied_source:
        params[MARIAN_SHARED] = source[:rows]
    else:
        params |= dict(zip(MARIAN_TABLES, (source[:rows], target[:target_rows]), strict=True))
    if not tied_output:
        params[MARIAN_OUTPUT] = output[:target_rows]
    if not options.output_omit_bias:
        bias = arrays.found.get(BIAS, np.zeros((1, len(target)), np.float32))
        params[MARIAN_BIAS] = bias.reshape(1, -1)[:, :target_rows]
    for name in _layers(options):
        params[name.marian] = name.kind.to_marian(arrays[name.huggingface])
    check_parameters(Model(options, params))
    return MarianModel(params, options.text)


def marian_positions(count: int, dim: int) -> np.ndarray:
    """Marian's table of positions ``(count, dim)``."""
    return sinusoidal_position_embeddings().value((count, dim), Type.float32)


class _Arrays:
    """The arrays of a checkpoint as float32, by name."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.found = {name: _as_array(name, value) for name, value in tensors.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.found:
            raise ConversionError(
                f"the checkpoint has no {name}; expected the state_dict of a MarianMTModel, it has "
                f"{len(self.found)} arrays: {', '.join(sorted(self.found))[:200]}"
            )
        return self.found[name]

    def table(self, names: tuple[str, ...]) -> np.ndarray:
        """The embedding table under the first of ``names`` that is there."""
        name = next((name for name in names if name in self.found), SHARED)
        table = self[name]
        if table.ndim != 2:
            raise ConversionError(f"{name}: expected a table of two axes, got shape {table.shape}")
        return table


def _as_array(name: str, value: Any) -> np.ndarray:
    if hasattr(value, "detach"):  # a tensor of PyTorch's, on any device
        value = value.detach().cpu().float().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise ConversionError(f"{name}: expected numbers, got {array.dtype}")
    return array.astype(np.float32, copy=False)


def _table_names(config: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the tables of source and target; files hold a tied table under any one of its names."""
    source, target = TABLES
    output = (OUTPUT,) if config.get("tie_word_embeddings", True) else ()
    if config.get("share_encoder_decoder_embeddings", True):
        return (source, SHARED, target, *output), (target, SHARED, source, *output)
    return (source, SHARED), (target, SHARED, *output)


def _are_tied(config: Mapping[str, Any], key: str, first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two tables are tied; ``ConversionError`` if ``key`` says so but they differ."""
    tied = bool(config.get(key, True))
    if tied and config.get("tie_word_embeddings", True) and not np.array_equal(first, second):
        raise ConversionError(f"config.json: {key}: true, but the tables that it ties differ")
    return tied and np.array_equal(first, second)


def _check_start(config: Mapping[str, Any], target: np.ndarray, zero_start: bool) -> None:
    start = config.get("decoder_start_token_id", config.get("pad_token_id"))
    if type(start) is not int or not 0 <= start < len(target):
        raise ConversionError(
            f"config.json: decoder_start_token_id: expected an id from 0 to {len(target) - 1}, got {start!r}"
        )
    greatest = np.abs(target[start]).max(initial=0)
    if greatest and not zero_start:
        raise ConversionError(
            f"the decoder starts with the row {start} of its embeddings, which holds numbers up to "
            f"{greatest:.3g}, as after training with HuggingFace; Marian starts with zeros. To convert it "
            "without that row, with slightly other results: --zero-start, zero_start=True"
        )
    if greatest:
        logger.warning("the decoder's first input becomes zeros; it was up to %.3g (--zero-start)", greatest)


def _check_positions(arrays: _Arrays) -> None:
    """Warn of positions other than Marian's; ``ConversionError`` if they are not sinusoids."""
    for name in POSITIONS:
        table = arrays.found.get(name)
        if table is not None and table.ndim == 2:
            if np.abs(table - marian_positions(*table.shape)).max(initial=0) < _SAME_POSITIONS:
                continue
            if np.abs(table - huggingface_positions(*table.shape)).max(initial=0) > _SAME_POSITIONS:
                raise ConversionError(
                    f"{name}: expected sinusoids as Marian computes them, got other numbers, as after "
                    "training with HuggingFace without embed_positions.requires_grad_(False)"
                )
        logger.warning(
            "%s: HuggingFace's positions become Marian's, whose wavelengths differ a little; so do results",
            name,
        )


def _check_layers(arrays: _Arrays, options: ModelOptions) -> None:
    """``ConversionError`` for arrays of layers that would be left out."""
    used = {name.huggingface for name in _layers(options)}
    layers = tuple(f"model.{stack}.layers." for stack in LAYERS)
    left = sorted(name for name in arrays.found if name.startswith(layers) and name not in used)
    if left:
        raise ConversionError(
            f"config.json: encoder_layers: {options.enc_depth}, decoder_layers: {options.dec_depth}, but the "
            f"checkpoint has {len(left)} more arrays of layers: {', '.join(left)[:200]}"
        )


def huggingface_positions(count: int, dim: int) -> np.ndarray:
    """HuggingFace's table of positions ``(count, dim)``:
    ``pos * 10000 ** (-2 i / dim)``, where Marian has ``-i / (dim / 2 - 1)``; sines, then cosines."""
    angles = np.arange(count)[:, None] / 10000.0 ** (2 * (np.arange(dim) // 2) / dim)
    return np.concatenate([np.sin(angles[:, ::2]), np.cos(angles[:, 1::2])], axis=1).astype(np.float32)


def _options(config: Mapping[str, Any], source: np.ndarray, target: np.ndarray, sizes: Sizes) -> ModelOptions:
    """The model's original options from Marian if they still fit, else new ones."""
    rows = (len(source), len(target))
    for key, count in zip(("vocab_size", "decoder_vocab_size"), rows, strict=True):
        default = count if config.get(key, count) is None else size(config, key, count)
        if default != count:
            raise ConversionError(f"config.json: {key}: {default}, but the table has {count} rows")
    text = config.get(MODEL_YML_KEY)
    if isinstance(text, str) and text:
        options = parse_model_options(text, "config.json")
        fitting = max(options.dim_vocabs) + 1 == rows[0] == rows[1]
        own = sizes._replace(dim_vocabs=options.dim_vocabs)
        if fitting and says_the_same(options, options_of(config, own)):
            return options
        logger.warning("config.json: %s no longer fits and is left out", MODEL_YML_KEY)
    pad, start = config.get("pad_token_id"), config.get("decoder_start_token_id")
    dropped = 1 if pad == start == rows[0] - 1 == rows[1] - 1 else 0
    options = options_of(config, sizes._replace(dim_vocabs=(rows[0] - dropped, rows[1] - dropped)))
    return parse_model_options(yaml_of(options), "config.json")


def _layers(options: ModelOptions) -> Iterator[Name]:
    yield from layer_names("encoder", options.enc_depth)
    yield from layer_names("decoder", options.dec_depth)


def _output_table(params: Mapping[str, np.ndarray]) -> np.ndarray:
    if MARIAN_OUTPUT in params:
        return params[MARIAN_OUTPUT]
    return Kind.MATRIX.to_huggingface(params[MARIAN_OLD_OUTPUT])


def _padded(table: np.ndarray, rows: int, value: float = 0.0) -> np.ndarray:
    """``table`` padded with ``value`` to ``rows`` rows."""
    return np.pad(table, ((0, rows - len(table)), (0, 0)), constant_values=value)
