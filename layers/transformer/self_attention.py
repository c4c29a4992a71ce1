"""Self-attention of a decoder."""

from __future__ import annotations

from mgraph import ArgumentError, Node, Type, cast, dot, eq, gt, inits, le, max, min, reshape, scatter, sum
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

    caches = "keys", "values"

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        self.config = config
        self.block = AttentionBlock(f"{prefix}_self", config, depth)
        self.raw = config.marian_exact and any(letter in NORMS for letter in config.preprocess)

    def __call__(self, x: Node, mask: Node) -> Node:
        return self.block.self_attend(x, mask)

    def start(self, graph: Graph, batch: int, beam: int, places: int) -> Cache:
        heads, dim = self.config.heads, self.config.dim
        # A sum of small constants, so that no program holds a big one.
        buffer = graph.zeros((batch, 1, places, 1)) + graph.zeros((1, heads, 1, dim // heads))
        return dict.fromkeys(self.caches, buffer)

    def step(self, x: Node, cache: Cache, now: Now) -> tuple[Node, Cache]:
        if now.seen is None or now.places is None:
            raise ArgumentError("a step of self-attention needs the words that hypotheses continue: Now.seen")
        queries = self.block.before(x)
        cache = self._extended(cache, x if self.raw else queries, now.places)
        seen = cache
        if self.raw:
            first = cast(eq(cast(now.place), 0), x.value_type)
            seen = self._extended(cache, first * queries + (1 - first) * x, now.places)
        y = self.block.attention.attend(queries, seen["keys"], seen["values"], now.seen)
        return self.block.after(y, x), cache

    def _extended(self, cache: Cache, words: Node, places: Node) -> Cache:
        """A cache with the keys and values of ``words (batch, beam, dim)``."""
        attention = self.block.attention
        return {
            "keys": scatter(cache["keys"], 2, places, attention.keys(words)),
            "values": scatter(cache["values"], 2, places, attention.values(words)),
        }


def no_ancestors(graph: Graph, batch: int, beam: int, places: int) -> Node:
    """Which of its sentence's words each hypothesis continues: none before the first step.

    ``(batch * beam, places)``, 1 at the places of the words that a hypothesis continues, 0 elsewhere. Keys
    and values stay where they were written: when a beam is reordered only this record is, which is small.
    """
    none: Node = graph.zeros((batch * beam, places), Type.float32)  # 16 bits cannot number all places
    return none


def with_ancestors(ancestors: Node, position: Node, beam: int, kind: Type) -> tuple[Node, Now, Node]:
    """The record after the step at ``position``, in which each hypothesis continues itself, the step, and
    ``(batch,)``, for each sentence whether it had too few places.

    The last words take the first places that no hypothesis continues: a beam has mostly one past, so that few
    more places than steps are needed; ``beam`` times the steps always suffice. kind: of ``Now.seen``.
    """
    rows, places = ancestors.shape
    batch, graph = rows // beam, ancestors.graph
    started = cast(gt(cast(Now(position).place), 0))
    before = reshape(ancestors, (batch, beam, places)) * started
    free = 1 - max(before, 1)
    numbers = graph.constant((places,), inits.range(0, places), Type.float32)
    up_to = le(reshape(numbers, (places, 1)), numbers)
    count = dot(free, up_to)
    wanted = graph.constant((beam, 1), inits.range(1, beam + 1), Type.float32)
    itself = eq(count, wanted) * free
    found = sum(itself, -1)
    place = sum(itself * numbers, -1) + (1 - found) * places
    places_now = cast(reshape(place, (batch, 1, beam, 1)), Type.int32)
    after = before + itself
    seen = log_mask(cast(reshape(after, (batch, 1, beam, places)), kind))
    full = 1 - reshape(min(found, 1), (batch,))
    return reshape(after, (rows, places)), Now(position, seen, places_now), full
