"""How a transformer's words get their positions."""

from __future__ import annotations

import math

from layers import NoPositionEmbedding, PositionEmbedding, Positions, TrainedPositionEmbedding
from mgraph import ExpressionGraph
from nmt.models.parts import ModelPart
from nmt.models.transformer.new import is_new
from nmt.settings.model_options import ModelOptions

MAX_LENGTH = 50
"""The default of Marian's option ``max-length`` in training, which is the size of a new table."""


def positions(graph: ExpressionGraph, part: ModelPart) -> Positions:
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
        return PositionEmbedding(graph, dim)
    name = f"{part.prefix}_Wpos" if new else "Wpos"
    rows = part.setup.shapes.get(name, (_max_length(options),))[0]
    return TrainedPositionEmbedding(graph, name, rows, dim)


def _max_length(options: ModelOptions) -> int:
    value = options.extra.get("max-length")
    return value if isinstance(value, int) else MAX_LENGTH
