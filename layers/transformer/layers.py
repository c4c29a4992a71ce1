"""Layers of the transformer's encoder and decoder."""

from __future__ import annotations

from collections.abc import Sequence

from mgraph import ArgumentError, Node, checkpoint

from ..choices import choose
from ..layer import Layer, of_class, size
from ..packing import PackedWords
from .autoregression import Autoregression, Cache, Now
from .average_attention import AverageAttention
from .blocks import AttentionBlock, Context, CrossBlock, FeedForwardBlock, PoolingBlock
from .config import TransformerConfig
from .recurrence import Recurrence
from .self_attention import SelfAttention

AUTOREGRESSIONS: dict[str, type[Autoregression]] = {
    "self-attention": SelfAttention,
    "average-attention": AverageAttention,
    "rnn": Recurrence,
}
"""Blocks by the value of Marian's option ``transformer-decoder-autoreg``."""


class EncoderLayer(Layer):
    """``y = ffn(self(x))``: self-attention, then feed-forward, each in its frame of operations.

    ``x`` and ``y`` are ``(batch, time, dim)``; the result is a checkpoint. Parameters: those of an
    ``AttentionBlock`` under ``{prefix}_self`` and of a ``FeedForwardBlock`` under ``{prefix}_ffn``.
    ``ArgumentError`` for a ``depth`` below 1.
    Source: Vaswani et al. 2017; Marian's ``EncoderTransformer``.
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        self.attention = AttentionBlock(f"{prefix}_self", config, depth)
        self.feed_forward = FeedForwardBlock(f"{prefix}_ffn", config, depth)

    def __call__(self, x: Node, mask: Node, packing: PackedWords | None = None) -> Node:
        """``x (batch, time, dim)``, or with ``packing`` ``(rows, width, dim)``; ``mask`` a ``log_mask`` that
        fits ``(batch, heads, time, time)``."""
        return checkpoint(self.feed_forward(self.attention.self_attend(x, mask, packing), packing))


class DecoderLayer(Layer):
    """``y = ffn(context(autoregression(x)))``, with one context block for each encoder.

    ``x`` and ``y`` are ``(batch, time, dim)``; the result is a checkpoint.
    Parameters: under ``{prefix}_self``, ``{prefix}_aan`` or ``{prefix}_rnn``, ``{prefix}_context``
    (``{prefix}_context_enc2`` and so on for further encoders), ``{prefix}_ffn``. ``ArgumentError`` for a
    ``depth`` below 1 or a negative number of ``encoders``.
    Source: Vaswani et al. 2017; Marian's ``DecoderTransformer``.
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int, encoders: int = 1) -> None:
        of_class(f"config of {prefix!r}", config, TransformerConfig)
        kind = choose("transformer-decoder-autoreg", config.decoder_autoreg, AUTOREGRESSIONS)
        self.autoregression = kind(prefix, config, depth)
        encoders = size(f"encoders of {prefix!r}", encoders, 0, error=ArgumentError)
        names = [f"{prefix}_context", *(f"{prefix}_context_enc{i}" for i in range(2, encoders + 1))]
        cross = PoolingBlock if config.pool else AttentionBlock
        self.cross: list[CrossBlock] = [cross(name, config, depth) for name in names[:encoders]]
        self.feed_forward = FeedForwardBlock(f"{prefix}_ffn", config, depth)

    def __call__(
        self, x: Node, mask: Node, contexts: Sequence[Context], packing: PackedWords | None = None
    ) -> Node:
        """``x (batch, time, dim)``, or with ``packing`` ``(rows, width, dim)``; ``mask`` is a ``log_mask``
        that hides later words."""
        after = self.autoregression(x, mask, packing)
        return self.after_autoregression(after, contexts, packing=packing)[0]

    def step(self, x: Node, cache: Cache, now: Now, contexts: Sequence[Context]) -> tuple[Node, Cache]:
        """One step, for ``x (batch, beam, dim)``."""
        x, cache = self.autoregression.step(x, cache, now)
        return self.after_autoregression(x, contexts)[0], cache

    def after_autoregression(
        self,
        x: Node,
        contexts: Sequence[Context],
        give_weights: bool = False,
        packing: PackedWords | None = None,
    ) -> tuple[Node, Node | None]:
        """The rest of the layer, after ``autoregression``: its result, and if requested the attention weights
        ``(batch, heads, time, source)`` over the first encoder, else ``None``.

        ``ArgumentError`` for a wrong number of contexts, and for anything else among them.
        """
        if len(contexts) != len(self.cross):
            raise ArgumentError(f"this layer sees {len(self.cross)} encoders, got {len(contexts)} contexts")
        for context in contexts:
            of_class("contexts of a decoder layer", context, Context)
        first: Node | None = None
        for number, (block, context) in enumerate(zip(self.cross, contexts, strict=True)):
            x, weights = block.cross_attend(x, context, give_weights and number == 0, packing)
            first = weights if number == 0 else first
        return checkpoint(self.feed_forward(x, packing)), first
