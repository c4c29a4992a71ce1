"""What the transformer's encoder and decoder have in common around their layers."""

from __future__ import annotations

from layers import PositionEmbedding, PostProcess, PreProcess, TransformerConfig
from mgraph import ExpressionGraph
from nmt.models.parts import Part


class Stack:
    """Embeddings with positions, what comes before the first layer, what comes after the last."""

    def __init__(self, graph: ExpressionGraph, part: Part, *, dim_ffn: int, ffn_depth: int) -> None:
        options, dropouts = part.options, part.setup.dropouts
        self.config = TransformerConfig(
            dim=options.dim_emb,
            heads=options.transformer_heads,
            dim_ffn=dim_ffn,
            ffn_depth=ffn_depth,
            ffn_activation=options.transformer_ffn_activation,
            preprocess=options.transformer_preprocess,
            postprocess=options.transformer_postprocess,
            projection=not options.transformer_no_projection,
            decoder_autoreg=options.transformer_decoder_autoreg,
            dropout=dropouts.transformer,
            dropout_attention=dropouts.transformer_attention,
            dropout_ffn=dropouts.transformer_ffn,
        )
        self.positions = PositionEmbedding(graph, options.dim_emb)
        self.bottom = PreProcess(
            graph,
            f"{part.prefix}_emb",
            options.transformer_postprocess_emb,
            dropout=dropouts.transformer,
            option="transformer-postprocess-emb",
        )
        self.top = PostProcess(
            graph,
            f"{part.prefix}_top",
            options.transformer_postprocess_top,
            dropout=dropouts.transformer,
            option="transformer-postprocess-top",
        )
