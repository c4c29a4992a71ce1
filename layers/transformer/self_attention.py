"""Self-attention of a decoder."""

from __future__ import annotations

from collections.abc import Sequence

from mgraph import (
    ArgumentError,
    Node,
    Type,
    cast,
    cumsum,
    dot,
    eq,
    ge,
    gt,
    inits,
    le,
    lt,
    narrow,
    reshape,
    scatter,
)
from mgraph import max as max_of
from mgraph import min as min_of
from mgraph import sum as sum_of
from mgraph.tape import Graph

from ..attention import log_mask
from ..layer import Layer
from ..packing import PackedWords
from ..processing import NORMS
from .autoregression import Cache, Now
from .blocks import AttentionBlock
from .config import TransformerConfig

MOST_BY_PRODUCT = 512
"""The most places of a cache that a product counts. A cache for translations that run to the length limit has
beam times as many places as steps: thousands."""


class SelfAttention(Layer):
    """Self-attention of a decoder, with previous keys and values in buffers of fixed size.

    Keys and values are pre-processed like queries, also in single steps. With ``marian_exact``, single steps
    follow Marian: from the second on, keys and values of all words come from ``x`` without ``preprocess``.

    Parameters: as ``AttentionBlock`` under ``{prefix}_self``. Source: Vaswani et al. 2017; Marian's
    ``DecoderLayerSelfAttention``.
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        self.config = config
        self.block = AttentionBlock(f"{prefix}_self", config, depth)
        self.raw = config.marian_exact and any(letter in NORMS for letter in config.preprocess)

    def __call__(self, x: Node, mask: Node, packing: PackedWords | None = None) -> Node:
        return self.block.self_attend(x, mask, packing)

    def start(self, graph: Graph, batch: int, beam: int, places: Sequence[int]) -> Cache:
        heads, dim = self.config.heads, self.config.dim
        cache: Cache = {}
        for part, count in enumerate(places):
            # The sum of two small constants keeps a big constant out of the program.
            buffer = graph.zeros((batch, 1, count, 1)) + graph.zeros((1, heads, 1, dim // heads))
            cache |= {f"keys{part or ''}": buffer, f"values{part or ''}": buffer}
        return cache

    def step(self, x: Node, cache: Cache, now: Now) -> tuple[Node, Cache]:
        if now.used is None:
            raise ArgumentError("a step of self-attention needs Now.used and Now.parts for its words")
        queries = self.block.before(x)
        cache = self._extended(cache, x if self.raw else queries, now)
        seen = cache
        if self.raw:
            first = cast(eq(now.place, 0), x.value_type)
            seen = self._extended(cache, first * queries + (1 - first) * x, now)
        kept = list(seen.values())
        masks = [mask for _, mask in now.parts]
        y = self.block.attention.attend_parts(queries, now.used, kept[::2], kept[1::2], masks)
        return self.block.after(y, x), cache

    def _extended(self, cache: Cache, words: Node, now: Now) -> Cache:
        """A cache with the keys and values of ``words (batch, beam, dim)``."""
        new = self.block.attention.keys(words), self.block.attention.values(words)
        kept = list(cache.items())
        return {
            name: scatter(before, 2, places, node)
            for (places, _), pair in zip(now.parts, zip(kept[::2], kept[1::2], strict=True), strict=True)
            for (name, before), node in zip(pair, new, strict=True)
        }


def places_of(cache: Cache) -> list[int]:
    """How many places each part of a cache has."""
    return [keys.shape[2] for keys in list(cache.values())[::2]]


def no_ancestors(graph: Graph, batch: int, beam: int, places: Sequence[int]) -> Node:
    """Which of its sentence's words each hypothesis continues: none before the first step.

    ``(batch * beam, all places)``, 1 at the places of the words that a hypothesis continues, 0 elsewhere.
    Keys and values stay where they were written: reordering a beam reorders only this small record.
    """
    # In float32, because 16 bits cannot number all places.
    none: Node = graph.zeros((batch * beam, sum(places)), Type.float32)
    return none


def _counted(free: Node, numbers: Node) -> Node:
    """The running sums of ``free (..., places)``. For few places a product computes them, as in the searches
    measured on GPUs; its cost grows with the square of their number."""
    (places,) = numbers.shape
    if places > MOST_BY_PRODUCT:
        return cumsum(free, -1)
    return dot(free, le(reshape(numbers, (places, 1)), numbers))


def with_ancestors(
    ancestors: Node, position: Node, beam: int, parts: Sequence[int], kind: Type
) -> tuple[Node, Now, Node]:
    """The record after the step at ``position``, which now includes each hypothesis's last word; the step
    as a ``Now``; and, for each sentence, whether it had too few places, ``(batch,)``.

    The last words take the first places that no hypothesis continues. The hypotheses of a beam mostly share
    one past, so few more places than steps are needed; ``beam`` times the steps always suffice. parts: the
    number of places of each part. kind: the element type of masks.
    """
    rows, places = ancestors.shape
    batch, graph = rows // beam, ancestors.graph
    started = cast(gt(Now(position).place, 0))
    before = reshape(ancestors, (batch, beam, places)) * started
    free = 1 - max_of(before, 1)
    numbers = graph.constant((places,), inits.range(0, places), Type.float32)
    wanted = graph.constant((beam, 1), inits.range(1, beam + 1), Type.float32)
    itself = eq(_counted(free, numbers), wanted) * free
    found = reshape(sum_of(itself, -1), (batch, 1, beam, 1))
    place = reshape(sum_of(itself * numbers, -1), found.shape) + (1 - found) * places
    after = before + itself
    seen = log_mask(cast(reshape(after, (batch, 1, beam, places)), kind))
    here, start = [], 0
    for size in parts:
        inside = ge(place, start) * lt(place, start + size)
        local = inside * (place - start) + (1 - inside) * size
        here.append((cast(local, Type.int32), narrow(seen, -1, start, size)))
        start += size
    used = cast(max_of(after * numbers, -1), Type.int32)
    full = 1 - reshape(min_of(found, 2), (batch,))
    return reshape(after, (rows, places)), Now(position, used, tuple(here)), full
