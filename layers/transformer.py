"""Layers of Marian's transformer: attention and feed-forward blocks with what comes before and after.

Sentences are batch-major, ``(batch, time, dim)``. A decoder layer also does single steps, in which
``(batch, beam, dim)`` holds the hypotheses of each sentence side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mgraph import ExpressionGraph, Node, Type, cast, checkpoint, inits, insert, le, reshape
from mgraph.inits import Initializer

from .activations import activation
from .attention import MultiHeadAttention, log_mask
from .choices import choose
from .dense import Affine
from .dropping import drop_features
from .processing import PostProcess, PreProcess

Cache = dict[str, Node]
"""What a layer keeps from step to step, by name; hypotheses are axis 0."""


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and options of a stack of layers; the names are Marian's without ``transformer-``.

    Dropout counts in training graphs only.
    """

    dim: int
    heads: int = 8
    dim_ffn: int = 2048
    ffn_depth: int = 2
    ffn_activation: str = "swish"
    preprocess: str = ""
    postprocess: str = "dan"
    projection: bool = True
    depth_scaling: bool = False
    decoder_autoreg: str = "self-attention"
    dropout: float = 0.0
    dropout_attention: float = 0.0
    dropout_ffn: float = 0.0

    def init(self, depth: int) -> Initializer:
        """The initialiser of matrices in layer ``depth``, from 1."""
        scale = 1 / math.sqrt(depth) if self.depth_scaling else 1.0
        return inits.glorot_uniform(True, True, scale)


class Context(NamedTuple):
    """What a decoder layer attends to: one encoder's output, mapped for that layer."""

    keys: Node
    """``(batch, heads, source, dim / heads)``, from ``MultiHeadAttention.keys``."""
    values: Node
    """``(batch, heads, source, dim / heads)``, from ``MultiHeadAttention.values``."""
    mask: Node
    """A ``log_mask``, ``(batch, 1, 1, source)``."""


class Block:
    """A sub-layer's frame: ``after(sublayer(before(x)), x)`` with the options of the stack."""

    def __init__(self, graph: ExpressionGraph, prefix: str, config: TransformerConfig, depth: int) -> None:
        self.before = PreProcess(graph, prefix, config.preprocess, dropout=config.dropout)
        self.after = PostProcess(
            graph, prefix, config.postprocess, dropout=config.dropout, init=config.init(depth)
        )


class AttentionBlock(Block):
    """Multi-head attention in its frame; attention under ``prefix``, the frame under ``{prefix}_Wo``.

    Source: Marian's ``LayerAttention``.
    """

    def __init__(self, graph: ExpressionGraph, prefix: str, config: TransformerConfig, depth: int) -> None:
        super().__init__(graph, f"{prefix}_Wo", config, depth)
        self.prefix = prefix
        self.attention = MultiHeadAttention(
            graph,
            prefix,
            config.dim,
            config.heads,
            projection=config.projection,
            dropout=config.dropout_attention,
            init=config.init(depth),
        )

    def cross_attend(self, x: Node, context: Context) -> Node:
        """``x (batch, time, dim)`` attends to a context."""
        return self.after(self.attention.attend(self.before(x), *context), x)

    def self_attend(self, x: Node, mask: Node) -> Node:
        """``x (batch, time, dim)`` attends to itself; keys and values are pre-processed as queries are."""
        y = self.before(x)
        return self.after(self.attention(y, y, y, mask), x)


class FeedForwardBlock(Block):
    """``depth`` affine layers, an activation and dropout after each but the last, in their frame.

    Parameters: ``{prefix}_W1 (dim, dim_ffn)``, ``{prefix}_b1``, ..., the last ``(dim_ffn, dim)``; the frame's
    under ``{prefix}_ffn``. Source: Marian's ``LayerFFN``.
    """

    def __init__(self, graph: ExpressionGraph, prefix: str, config: TransformerConfig, depth: int) -> None:
        super().__init__(graph, f"{prefix}_ffn", config, depth)
        sizes = [config.dim_ffn] * (config.ffn_depth - 1) + [config.dim]
        self.layers = [
            Affine(graph, prefix, size, str(i), init=config.init(depth)) for i, size in enumerate(sizes, 1)
        ]
        self.activation = activation(config.ffn_activation, "transformer-ffn-activation")
        self.dropout = config.dropout_ffn

    def __call__(self, x: Node) -> Node:
        *inner, last = self.layers
        y = self.before(x)
        for layer in inner:
            y = drop_features(self.activation(layer(y)), self.dropout)
        return self.after(last(y), x)


class EncoderLayer:
    """Self-attention ``{prefix}_self``, then feed-forward ``{prefix}_ffn``; its result is a checkpoint."""

    def __init__(self, graph: ExpressionGraph, prefix: str, config: TransformerConfig, depth: int) -> None:
        self.attention = AttentionBlock(graph, f"{prefix}_self", config, depth)
        self.feed_forward = FeedForwardBlock(graph, f"{prefix}_ffn", config, depth)

    def __call__(self, x: Node, mask: Node) -> Node:
        """``x (batch, time, dim)``; ``mask`` a ``log_mask`` that fits ``(batch, heads, time, time)``."""
        return checkpoint(self.feed_forward(self.attention.self_attend(x, mask)))


class Autoregression(Protocol):
    """What lets a decoder layer see the words before: over a whole sentence, or step by step."""

    def __init__(
        self, graph: ExpressionGraph, prefix: str, config: TransformerConfig, depth: int
    ) -> None: ...

    def __call__(self, x: Node, mask: Node) -> Node:
        """``x (batch, time, dim)``; ``mask`` a ``log_mask`` that hides what comes later."""
        ...

    def start(self, rows: int, max_length: int) -> Cache:
        """The cache of ``rows`` hypotheses before the first of at most ``max_length`` steps."""
        ...

    def step(self, x: Node, cache: Cache, position: Node) -> tuple[Node, Cache]:
        """The step at ``position ()``, an integer from 0, for ``x (batch, beam, dim)``."""
        ...


class SelfAttention:
    """Self-attention of a decoder, with keys and values of the words before in buffers of fixed size.

    Parameters: as ``AttentionBlock`` under ``{prefix}_self``.
    """

    def __init__(self, graph: ExpressionGraph, prefix: str, config: TransformerConfig, depth: int) -> None:
        self.graph, self.config = graph, config
        self.block = AttentionBlock(graph, f"{prefix}_self", config, depth)

    def __call__(self, x: Node, mask: Node) -> Node:
        return self.block.self_attend(x, mask)

    def start(self, rows: int, max_length: int) -> Cache:
        heads, dim = self.config.heads, self.config.dim
        # A sum of small constants, so that no program holds a big one.
        buffer = self.graph.zeros((rows, 1, max_length, 1)) + self.graph.zeros((1, heads, 1, dim // heads))
        return {"keys": buffer, "values": buffer}

    def step(self, x: Node, cache: Cache, position: Node) -> tuple[Node, Cache]:
        attention = self.block.attention
        y = self.block.before(x)
        words = reshape(y, (cache["keys"].shape[0], 1, y.shape[-1]))
        cache = {
            "keys": insert(cache["keys"], attention.keys(words), position, 2),
            "values": insert(cache["values"], attention.values(words), position, 2),
        }
        places = cache["keys"].shape[2]
        seen = le(self.graph.constant((places,), inits.range(0, places), Type.float32), cast(position))
        mask = log_mask(cast(seen, x.value_type))
        y = attention.attend(words, cache["keys"], cache["values"], mask)
        return self.block.after(reshape(y, x.shape), x), cache


AUTOREGRESSIONS: dict[str, type[Autoregression]] = {"self-attention": SelfAttention}
"""By the value of Marian's option ``transformer-decoder-autoreg``."""

MARIAN_AUTOREGRESSIONS = ("self-attention", "average-attention", "rnn")


class DecoderLayer:
    """Autoregression, attention to each encoder, then feed-forward.

    Parameters: under ``{prefix}_self``, ``{prefix}_context`` (``{prefix}_context_enc2`` and so on for further
    encoders), ``{prefix}_ffn``.
    """

    def __init__(
        self, graph: ExpressionGraph, prefix: str, config: TransformerConfig, depth: int, encoders: int = 1
    ) -> None:
        kind = choose(
            "transformer-decoder-autoreg", config.decoder_autoreg, AUTOREGRESSIONS, MARIAN_AUTOREGRESSIONS
        )
        self.prefix = prefix
        self.autoregression = kind(graph, prefix, config, depth)
        names = [f"{prefix}_context", *(f"{prefix}_context_enc{i}" for i in range(2, encoders + 1))]
        self.cross = [AttentionBlock(graph, name, config, depth) for name in names[:encoders]]
        self.feed_forward = FeedForwardBlock(graph, f"{prefix}_ffn", config, depth)

    def __call__(self, x: Node, mask: Node, contexts: Sequence[Context]) -> Node:
        """``x (batch, time, dim)``; ``mask`` a ``log_mask`` that hides what comes later."""
        return self._rest(self.autoregression(x, mask), contexts)

    def step(self, x: Node, cache: Cache, position: Node, contexts: Sequence[Context]) -> tuple[Node, Cache]:
        """The step at ``position ()``, an integer from 0, for ``x (batch, beam, dim)``."""
        x, cache = self.autoregression.step(x, cache, position)
        return self._rest(x, contexts), cache

    def _rest(self, x: Node, contexts: Sequence[Context]) -> Node:
        for block, context in zip(self.cross, contexts, strict=True):
            x = block.cross_attend(x, context)
        return checkpoint(self.feed_forward(x))
