"""``Autoregression``: how a decoder layer sees previous words."""

from __future__ import annotations

from typing import Protocol

from mgraph import Node
from mgraph.tape import Graph

from .config import TransformerConfig

Cache = dict[str, Node]
"""What a layer keeps from step to step, by name; hypotheses are axis 0."""


class Autoregression(Protocol):
    """A block of a decoder that runs over a whole sentence, or step by step."""

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None: ...

    def __call__(self, x: Node, mask: Node) -> Node:
        """``x (batch, time, dim)``; ``mask`` is a ``log_mask`` that hides later words, for blocks that are
        not causal by themselves."""
        ...

    def start(self, graph: Graph, rows: int, max_length: int) -> Cache:
        """The cache of ``rows`` hypotheses before the first of at most ``max_length`` steps."""
        ...

    def step(self, x: Node, cache: Cache, position: Node) -> tuple[Node, Cache]:
        """The step at ``position ()``, an integer from 0, for ``x (batch, beam, dim)``."""
        ...
