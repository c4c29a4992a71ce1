"""Marian's transformer encoder."""

from __future__ import annotations

from layers import EncoderLayer, log_mask
from mgraph import reshape
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
        config, depths = encoder_config(setup), range(1, self.options.enc_depth + 1)
        self.stack = Stack(self, config, len(depths))
        self.layers = [EncoderLayer(f"{prefix}_l{depth}", config, depth) for depth in depths]

    @property
    def dim_context(self) -> int:
        return self.options.dim_emb

    def encode(self, source: Source) -> Encoded:
        batch, length = source.ids.shape
        embedded = self.stack.positions(self.embedding(source.ids))
        mask = log_mask(reshape(source.mask, (batch, 1, 1, length)))
        x = self.stack.bottom(embedded)
        for layer in self.layers:
            x = layer(x, mask)
        return Encoded(self.stack.top(x, embedded), source.mask)
