"""Marian's transformer encoder."""

from __future__ import annotations

from layers import EncoderLayer, log_mask
from mgraph import ExpressionGraph, reshape
from nmt.models.parts import Encoded, EncoderPart, Setup, Source
from nmt.models.transformer.config import encoder_config
from nmt.models.transformer.stack import Stack


class TransformerEncoder(EncoderPart):
    """Layers of self-attention and feed-forward (Vaswani et al. 2017).

    Parameters: ``{prefix}_l1_self_*``, ``{prefix}_l1_ffn_*``, ... and embeddings.
    Source: Marian, ``EncoderTransformer`` in ``models/transformer.h``.
    """

    def __init__(self, setup: Setup, prefix: str, stream: int) -> None:
        super().__init__(setup, prefix, stream)
        self.config = encoder_config(setup)

    def encode(self, graph: ExpressionGraph, source: Source) -> Encoded:
        batch, length = source.ids.shape
        stack = Stack(graph, self, self.config, self.options.enc_depth)
        embedded = stack.positions(self.embedding(graph)(source.ids))
        mask = log_mask(reshape(source.mask, (batch, 1, 1, length)))
        x = stack.bottom(embedded)
        for depth in range(1, self.options.enc_depth + 1):
            x = EncoderLayer(graph, f"{self.prefix}_l{depth}", self.config, depth)(x, mask)
        return Encoded(stack.top(x, embedded), source.mask)
