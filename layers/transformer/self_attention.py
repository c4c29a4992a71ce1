"""Self-attention of a decoder."""

from __future__ import annotations

from mgraph import ArgumentError, Node, cast, eq, inits, insert, reshape
from mgraph.tape import Graph

from ..attention import log_mask
from ..layer import Layer
from ..processing import NORMS
from .autoregression import Cache, Now
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

    def start(self, graph: Graph, batch: int, beam: int, max_length: int) -> Cache:
        heads, dim = self.config.heads, self.config.dim
        # A sum of small constants, so that no program holds a big one.
        buffer = graph.zeros((batch, 1, max_length * beam, 1)) + graph.zeros((1, heads, 1, dim // heads))
        return {"keys": buffer, "values": buffer}

    def step(self, x: Node, cache: Cache, now: Now) -> tuple[Node, Cache]:
        if now.seen is None:
            raise ArgumentError("a step of self-attention needs the words that hypotheses continue: Now.seen")
        queries = self.block.before(x)
        cache = self._extended(cache, x if self.raw else queries, now)
        seen = cache
        if self.raw:
            first = cast(eq(cast(now.place), 0), x.value_type)
            seen = self._extended(cache, first * queries + (1 - first) * x, now)
        y = self.block.attention.attend(queries, seen["keys"], seen["values"], now.seen)
        return self.block.after(y, x), cache

    def _extended(self, cache: Cache, words: Node, now: Now) -> Cache:
        """A cache with the keys and values of ``words (batch, beam, dim)``."""
        attention = self.block.attention
        at = now.position * words.shape[1]
        return {
            "keys": insert(cache["keys"], attention.keys(words), at, 2),
            "values": insert(cache["values"], attention.values(words), at, 2),
        }


def no_ancestors(graph: Graph, batch: int, beam: int, max_length: int) -> Node:
    """Which of its sentence's previous words each hypothesis continues: none before the first step.

    ``(batch * beam, max_length * beam)``, 1 at the place ``position * beam + place in the beam`` of each word
    that a hypothesis continues, 0 elsewhere. Keys and values stay where they were written: when a beam is
    reordered only this record is, which is small.
    """
    none: Node = graph.zeros((batch * beam, max_length * beam))
    return none


def with_ancestors(ancestors: Node, position: Node, beam: int) -> tuple[Node, Now]:
    """The record after the step at ``position``, in which each hypothesis continues itself, and the step."""
    rows, places = ancestors.shape
    batch, graph, kind = rows // beam, ancestors.graph, ancestors.value_type
    itself = reshape(graph.constant((beam, beam), inits.eye(), kind), (1, beam, beam))
    itself = itself + graph.zeros((batch, 1, 1), kind)
    after = insert(reshape(ancestors, (batch, beam, places)), itself, position * beam, 2)
    seen = log_mask(reshape(after, (batch, 1, beam, places)))
    return reshape(after, (rows, places)), Now(position, seen)
