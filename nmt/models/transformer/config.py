"""What the options of a model say to the layers of its stacks."""

from __future__ import annotations

from dataclasses import replace

from layers import NormConfig, TransformerConfig, UnsupportedOptionError
from nmt.models.parts import Setup
from nmt.models.transformer.new import check_new, is_new
from nmt.settings.model_options import ModelOptions

_ACTIVATIONS = ("relu", "swish", "gelu", "sigmoid")
_ONLY_OLD, _ONLY_NEW = "", "tanh"
"""Activations that ``transformer-new`` has not, and that no other type has."""


def encoder_config(setup: Setup) -> TransformerConfig:
    """Sizes and options of the encoder's layers."""
    options, dropouts = setup.options, setup.dropouts
    _check_activation(options, "transformer-ffn-activation")
    if options.dim_emb % options.transformer_heads:
        raise UnsupportedOptionError(
            f"transformer-heads: expected a divisor of dim-emb, {options.dim_emb}, got"
            f" {options.transformer_heads}"
        )
    config = TransformerConfig(
        dim=options.dim_emb,
        heads=options.transformer_heads,
        dim_ffn=options.transformer_dim_ffn,
        ffn_depth=options.transformer_ffn_depth,
        ffn_activation=options.transformer_ffn_activation,
        preprocess=options.transformer_preprocess,
        postprocess=options.transformer_postprocess,
        projection=not options.transformer_no_projection,
        depth_scaling=options.extra.get("transformer-depth-scaling") is True,
        dropout=dropouts.transformer,
        dropout_attention=dropouts.transformer_attention,
        dropout_ffn=dropouts.transformer_ffn,
    )
    return _renewed(config, options) if is_new(options) else config


def decoder_config(setup: Setup) -> TransformerConfig:
    """Sizes and options of the decoder's layers."""
    options = setup.options
    if options.transformer_decoder_autoreg == "average-attention":
        _check_activation(options, "transformer-aan-activation")
    config = replace(
        encoder_config(setup),
        dim_ffn=options.transformer_decoder_dim_ffn or options.transformer_dim_ffn,
        ffn_depth=options.transformer_decoder_ffn_depth or options.transformer_ffn_depth,
        decoder_autoreg=options.transformer_decoder_autoreg,
        dim_aan=options.transformer_dim_aan,
        aan_depth=options.transformer_aan_depth,
        aan_activation=options.transformer_aan_activation,
        aan_gate=not options.transformer_aan_nogate,
        dec_cell=options.dec_cell,
        layer_normalization=options.layer_normalization,
        rnn_projection=options.transformer_rnn_projection,
        dropout_rnn=setup.dropouts.rnn,
        pool=options.transformer_pool,
        marian_exact=setup.marian_exact,
    )
    return _renewed(config, options) if is_new(options) else config


def _renewed(config: TransformerConfig, options: ModelOptions) -> TransformerConfig:
    """The layers of ``transformer-new``: other normalizations, no fewer than two feed-forward layers, SSRU as
    the only cell, which neither normalizes nor drops, and steps that agree with what was trained."""
    check_new(options)
    return replace(
        config,
        norm=NormConfig(eps=1e-5, rms_bias=True),
        bias=not options.transformer_no_bias,
        projection=True,
        ffn_depth=max(config.ffn_depth, 2),
        dec_cell="ssru",
        layer_normalization=False,
        dropout_rnn=0.0,
        pool=False,
        marian_exact=False,
    )


def layer_numbers(options: ModelOptions) -> tuple[int, ...]:
    """The number of each layer of the decoder, from 1; tied layers have one number
    (``transformer-tied-layers``)."""
    depth, numbers = options.dec_depth, options.transformer_tied_layers
    if numbers and len(numbers) != depth:
        raise UnsupportedOptionError(
            f"transformer-tied-layers: expected a number for each of the {depth} layers of the decoder, got"
            f" {list(numbers)}"
        )
    if is_new(options) and any(number > place for place, number in enumerate(numbers, 1)):
        raise UnsupportedOptionError(
            "transformer-tied-layers: in transformer-new no layer is tied to one above it, got"
            f" {list(numbers)}"
        )
    return numbers or tuple(range(1, depth + 1))


def _check_activation(options: ModelOptions, name: str) -> None:
    """``UnsupportedOptionError`` for an activation that Marian refuses for this type."""
    known = (*_ACTIVATIONS, _ONLY_NEW if is_new(options) else _ONLY_OLD)
    if options[name] not in known:
        raise UnsupportedOptionError(
            f"{name}: {options[name]!r} is unknown; there is {', '.join(map(repr, known))}"
        )
