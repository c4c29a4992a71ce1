"""What the transformer's encoder and decoder have in common around their layers."""

from __future__ import annotations

from layers import PostProcess, PreProcess, TransformerConfig
from mgraph import ExpressionGraph
from nmt.models.parts import ModelPart
from nmt.models.transformer.positions import positions


class Stack:
    """Embeddings with positions, what comes before the first of ``depth`` layers and after the last."""

    def __init__(
        self, graph: ExpressionGraph, part: ModelPart, config: TransformerConfig, depth: int
    ) -> None:
        options = part.options
        self.positions = positions(graph, part)
        self.bottom = PreProcess(
            graph,
            f"{part.prefix}_emb",
            options.transformer_postprocess_emb,
            dropout=config.dropout,
            norm=config.norm,
            option="transformer-postprocess-emb",
        )
        self.top = PostProcess(
            graph,
            f"{part.prefix}_top",
            options.transformer_postprocess_top,
            dropout=config.dropout,
            init=config.init(depth),
            norm=config.norm,
            option="transformer-postprocess-top",
        )
