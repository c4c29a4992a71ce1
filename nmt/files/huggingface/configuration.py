"""Convert Marian's model options to HuggingFace's ``MarianConfig``, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from layers import UnsupportedOptionError
from mgraph import MGraphError, __version__
from nmt.settings.model_options import ModelOptions, Value

MODEL_YML_KEY = "marian_model_yml"
"""The key of ``config.json`` that keeps Marian's own configuration for the way back."""

ACTIVATIONS = {name: name for name in ("swish", "relu", "gelu", "sigmoid")}
"""Marian's ``transformer-ffn-activation`` and HuggingFace's ``activation_function``; both gelus are exact."""
MAX_POSITIONS = 1024
"""``max_position_embeddings``: the size of HuggingFace's table; longer texts are an error."""

_FROM_HUGGINGFACE = ACTIVATIONS | {"silu": "swish", "gelu_python": "gelu"}
_LARGEST = 1 << 31

_ONLY: dict[str, tuple[Value, ...]] = {
    "type": ("transformer",),
    "input-types": ((), ("sequence", "sequence")),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-tied-layers": ((),),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-ffn-activation": tuple(ACTIVATIONS),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-pool": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-disable-position-embeddings": (False,),
    "transformer-attention-mask": ("default",),
    "right-left": (False,),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
}
_STEPS = {
    "transformer-preprocess": "",
    "transformer-postprocess": "an",
    "transformer-postprocess-emb": "",
    "transformer-postprocess-top": "",
}
"""The operations around each layer, without dropout ("d"), which does nothing in inference."""


class ConversionError(MGraphError, ValueError):
    """A checkpoint or a vocabulary cannot be converted; the message says why."""


class Sizes(NamedTuple):
    """Options inferred from the arrays of a checkpoint."""

    dim_vocabs: tuple[int, ...]
    tied_source: bool
    """One table serves source and target."""
    tied_output: bool
    """The output layer uses the target's table."""


def check_representable(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for the first option that HuggingFace's MarianMT does not support."""
    for name, allowed in _ONLY.items():
        if options[name] not in allowed:
            _refuse(name, options[name], allowed)
    for name, wanted in _STEPS.items():
        value = str(options[name])
        if value.replace("d", "") != wanted:
            _refuse(name, value, (wanted, "d" + wanted))


def config_of(options: ModelOptions, eos_id: int) -> dict[str, Any]:
    """The ``config.json`` of a model; ``eos_id`` is the id of ``</s>`` in the target vocabulary.

    ``<pad>``, with which HuggingFace's decoder starts, is the id after both vocabularies.
    """
    check_representable(options)
    pad = max(options.dim_vocabs)
    heads, tied_source, tied_output = options.transformer_heads, *tying(options)
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": pad + 1,
        "decoder_vocab_size": pad + 1,
        "share_encoder_decoder_embeddings": tied_source,
        "tie_word_embeddings": tied_output,
        "d_model": options.dim_emb,
        "encoder_layers": options.enc_depth,
        "decoder_layers": options.dec_depth,
        "num_hidden_layers": options.enc_depth,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": options.transformer_dim_ffn,
        "decoder_ffn_dim": options.transformer_decoder_dim_ffn or options.transformer_dim_ffn,
        "activation_function": ACTIVATIONS[options.transformer_ffn_activation],
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": eos_id,
        "forced_eos_token_id": eos_id,
        "bos_token_id": None,
        MODEL_YML_KEY: options.text,
    }


def tying(options: ModelOptions) -> tuple[bool, bool]:
    """Whether one table serves source and target, and whether the output layer uses the target's."""
    everything = options.tied_embeddings_all
    return everything or options.tied_embeddings_src, everything or options.tied_embeddings


def options_of(config: Mapping[str, Any], sizes: Sizes) -> ModelOptions:
    """Marian's options for a ``config.json`` and its arrays; ``ConversionError`` names an unsupported key."""
    if config.get("model_type") != "marian":
        _refuse_key("model_type", "'marian'", config.get("model_type"))
    if config.get("scale_embedding", False) is not True:
        _refuse_key("scale_embedding", "true: Marian multiplies embeddings by sqrt(dim-emb)", False)
    activation = config.get("activation_function", "gelu")
    if not isinstance(activation, str) or activation not in _FROM_HUGGINGFACE:
        known = ", ".join(_FROM_HUGGINGFACE)
        _refuse_key("activation_function", f"one of {known}", activation)
    heads = size(config, "encoder_attention_heads", 16)
    if size(config, "decoder_attention_heads", 16) != heads:
        wanted = f"{heads}, as in the encoder: Marian has one transformer-heads"
        _refuse_key("decoder_attention_heads", wanted, config.get("decoder_attention_heads"))
    ffn, decoder_ffn = size(config, "encoder_ffn_dim", 4096), size(config, "decoder_ffn_dim", 4096)
    return ModelOptions(
        type="transformer",
        version=f"mgraph {__version__}",
        dim_vocabs=sizes.dim_vocabs,
        dim_emb=size(config, "d_model", 1024),
        enc_depth=size(config, "encoder_layers", 12),
        dec_depth=size(config, "decoder_layers", 12),
        transformer_heads=heads,
        transformer_dim_ffn=ffn,
        transformer_decoder_dim_ffn=0 if decoder_ffn == ffn else decoder_ffn,
        transformer_ffn_activation=_FROM_HUGGINGFACE[activation],
        tied_embeddings_all=sizes.tied_source and sizes.tied_output,
        tied_embeddings_src=sizes.tied_source and not sizes.tied_output,
        tied_embeddings=sizes.tied_output and not sizes.tied_source,
    )


def says_the_same(options: ModelOptions, others: ModelOptions) -> bool:
    """Whether both describe the same computation by the same parameters, for HuggingFace's MarianMT."""
    return _facts(options) == _facts(others)


def _facts(options: ModelOptions) -> tuple[Any, ...]:
    return (
        options.dim_vocabs,
        tying(options),
        options.dim_emb,
        options.enc_depth,
        options.dec_depth,
        options.transformer_heads,
        options.transformer_dim_ffn,
        options.transformer_decoder_dim_ffn or options.transformer_dim_ffn,
        options.transformer_ffn_activation,
    )


def size(config: Mapping[str, Any], key: str, default: int) -> int:
    """The number under ``key``, or HuggingFace's ``default``."""
    value = config.get(key, default)
    if type(value) is not int or not 0 < value < _LARGEST:
        _refuse_key(key, "a whole number from 1", value)
    return int(value)


def _refuse(name: str, value: Value, allowed: tuple[Value, ...]) -> None:
    known = " or ".join(repr(list(item) if isinstance(item, tuple) else item) for item in allowed)
    shown = list(value) if isinstance(value, tuple) else value
    raise UnsupportedOptionError(f"{name}: HuggingFace's MarianMT has only {known}, the model has {shown!r}")


def _refuse_key(key: str, wanted: str, value: Any) -> None:
    raise ConversionError(f"config.json: {key}: expected {wanted}; got {str(value)[:80]!r}")
