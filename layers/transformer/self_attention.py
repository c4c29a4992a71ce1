"""Self-attention of a decoder."""

from __future__ import annotations

from mgraph import Node, Type, cast, eq, inits, insert, le, reshape
from mgraph.tape import Graph

from ..attention import log_mask
from ..layer import Layer
from ..processing import NORMS
from .autoregression import Cache
from .blocks import AttentionBlock
from .config import TransformerConfig


class SelfAttention(Layer):
    """Self-attention of a decoder, with previous keys and values in buffers of fixed size.

    Keys and values are pre-processed like queries, also in single steps. With ``marian_exact`` single steps
    are Marian's: from the second on, keys and values of all words come from ``x`` without ``preprocess``.

    Parameters: as ``AttentionBlock`` under ``{prefix}_self``. Source: Vaswani et al. 2017; Marian's
    ``DecoderLayerSelfAttention``.
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        self.config = config
        self.block = AttentionBlock(f"{prefix}_self", config, depth)
        self.raw = config.marian_exact and any(letter in NORMS for letter in config.preprocess)

    def __call__(self, x: Node, mask: Node) -> Node:
        return self.block.self_attend(x, mask)

    def start(self, graph: Graph, rows: int, max_length: int) -> Cache:
        heads, dim = self.config.heads, self.config.dim
        # A sum of small constants, so that no program holds a big one.
        buffer = graph.zeros((rows, 1, max_length, 1)) + graph.zeros((1, heads, 1, dim // heads))
        return {"keys": buffer, "values": buffer}

    def step(self, x: Node, cache: Cache, position: Node) -> tuple[Node, Cache]:
        words = reshape(x, (cache["keys"].shape[0], 1, x.shape[-1]))
        queries = self.block.before(words)
        cache = self._extended(cache, words if self.raw else queries, position)
        seen = cache
        if self.raw:
            first = cast(eq(cast(position), 0), x.value_type)
            seen = self._extended(cache, first * queries + (1 - first) * words, position)
        y = self.block.attention.attend(queries, seen["keys"], seen["values"], self._mask(seen, position))
        return self.block.after(reshape(y, x.shape), x), cache

    def _extended(self, cache: Cache, words: Node, position: Node) -> Cache:
        """A cache with the keys and values of ``words (rows, 1, dim)`` at ``position``."""
        attention = self.block.attention
        return {
            "keys": insert(cache["keys"], attention.keys(words), position, 2),
            "values": insert(cache["values"], attention.values(words), position, 2),
        }

    def _mask(self, cache: Cache, position: Node) -> Node:
        places = cache["keys"].shape[2]
        numbers = position.graph.constant((places,), inits.range(0, places), Type.float32)
        return log_mask(cast(le(numbers, cast(position)), cache["keys"].value_type))
