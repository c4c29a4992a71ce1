"""``Autoregression``: how a decoder layer sees previous words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mgraph import Node, reshape
from mgraph.tape import Graph

from ..packing import PackedWords
from .config import TransformerConfig

Cache = dict[str, Node]
"""What a layer keeps from step to step, by name. Axis 0 is the sentence or, for nodes that differ between
hypotheses and must follow them, ``sentence * beam + place in the beam``."""


@dataclass(frozen=True)
class Now:
    """Where the hypotheses of a batch are in their translations at one step."""

    position: Node
    """Integer ``(batch,)`` or ``()``: how many words the hypotheses of each sentence, or of all sentences,
    have."""
    used: Node | None = None
    """Integers; the largest is the last place of a word that some hypothesis continues."""
    parts: tuple[tuple[Node, Node], ...] = ()
    """Two nodes for each part of the places: integers ``(batch, 1, beam, 1)``, where in the part the last
    words of hypotheses are kept, past its end if they are in another part; and a
    ``log_mask (batch, 1, beam, places of the part)`` that shows the words of its sentence that each
    hypothesis continues, including the last word."""

    @property
    def place(self) -> Node:
        """``position`` as ``(batch, 1, 1)`` or ``()``, to broadcast to ``(batch, beam, dim)``."""
        return reshape(self.position, (*self.position.shape, 1, 1)) if self.position.shape else self.position


class Autoregression(Protocol):
    """A block of a decoder that runs over a whole sentence, or step by step."""

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None: ...

    def __call__(self, x: Node, mask: Node, packing: PackedWords | None = None) -> Node:
        """``x (batch, time, dim)``, or with ``packing`` ``(rows, width, dim)``; ``mask`` is a ``log_mask``
        that hides later words, for blocks that are not causal by themselves."""
        ...

    def start(self, graph: Graph, batch: int, beam: int, places: Sequence[int]) -> Cache:
        """The cache of ``beam`` hypotheses of each sentence before the first step. places: the number of
        words of a sentence that each part of the cache has room for."""
        ...

    def step(self, x: Node, cache: Cache, now: Now) -> tuple[Node, Cache]:
        """One step, for ``x (batch, beam, dim)``."""
        ...
