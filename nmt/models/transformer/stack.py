"""What the transformer's encoder and decoder have in common around their layers."""

from __future__ import annotations

import math

from layers import (
    Layer,
    NoPositionEmbedding,
    PositionEmbedding,
    Positions,
    PostProcess,
    PreProcess,
    TrainedPositionEmbedding,
    TransformerConfig,
)
from nmt.models.parts import TRAINING, ModelPart
from nmt.models.transformer.new import is_new
from nmt.settings.model_options import ModelOptions


class Stack(Layer):
    """Embeddings with positions, what comes before the first of ``depth`` layers and after the last."""

    def __init__(self, part: ModelPart, config: TransformerConfig, depth: int) -> None:
        options, dim = part.options, config.dim
        self.positions = positions(part)
        self.bottom = PreProcess(
            f"{part.prefix}_emb",
            dim,
            options.transformer_postprocess_emb,
            dropout=config.dropout,
            norm=config.norm,
            option="transformer-postprocess-emb",
        )
        self.top = PostProcess(
            f"{part.prefix}_top",
            dim,
            options.transformer_postprocess_top,
            dropout=config.dropout,
            init=config.init(depth),
            norm=config.norm,
            option="transformer-postprocess-top",
        )


def positions(part: ModelPart) -> Positions:
    """Positions by sinusoids, by a table, or none, as the options of the model say.

    The type ``transformer`` reads ``transformer-train-positions``, which no option of Marian's command line
    sets today, and has one table ``Wpos`` for all sides; ``transformer-new`` has one for each.
    """
    options, dim = part.options, part.options.dim_emb
    new = is_new(options)
    if options.transformer_disable_position_embeddings:
        return NoPositionEmbedding(math.sqrt(dim) if new else 1.0)
    old = options.extra.get("transformer-train-positions") is True
    if not (options.transformer_train_position_embeddings if new else old):
        return PositionEmbedding(dim)
    name = f"{part.prefix}_Wpos" if new else "Wpos"
    rows, *_ = part.setup.shapes.get(name) or (_max_length(options),)
    return TrainedPositionEmbedding(name, rows, dim)


def _max_length(options: ModelOptions) -> int:
    """The rows of a new table: Marian's ``max-length`` in training."""
    value = options.extra.get("max-length")
    return value if isinstance(value, int) else TRAINING["max-length"]
