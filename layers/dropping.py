"""Dropout in layers: none in inference, and masks shared by steps or sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from mgraph import ArgumentError, Node, dropout
from mgraph.ops.operands import is_number
from mgraph.tape import Graph, Tape

from .layer import graph_of
from .packing import PackedWords, at_positions


def probability(what: str, p: float) -> float:
    """``p``; ``ArgumentError``, which names ``what``, unless ``0 <= p < 1``."""
    if not is_number(p) or not 0 <= p < 1:
        raise ArgumentError(f"{what} expects a probability 0 <= p < 1, got {p!r}")
    return p


def rate(graph: Graph, p: float) -> float:
    """The probability ``p`` in a training graph, 0 in inference."""
    return 0.0 if graph.is_inference() else p


def shared_mask(graph: Graph, p: float, shape: Sequence[int]) -> Node | None:
    """A mask for several uses of ``mgraph.dropout``; ``None`` without dropout."""
    p = rate(graph, p)
    return graph.dropout_mask(p, tuple(shape)) if p else None


class FeatureMask:
    """A mask ``(1, features)`` that a layer draws once per recording of a graph."""

    def __init__(self, p: float, features: int) -> None:
        self.p, self.features = p, features
        self._drawn: WeakKeyDictionary[Tape[Node], Node] = WeakKeyDictionary()

    def on(self, graph: Graph) -> Node | None:
        """The mask for the current recording; ``None`` without dropout."""
        if not rate(graph, self.p):
            return None
        tape = graph.recording[0]
        if tape not in self._drawn:
            self._drawn[tape] = graph.dropout_mask(self.p, (1, self.features))
        return self._drawn[tape]

    def __reduce__(self) -> Any:
        # called by copy and pickle: the masks drawn so far belong to recordings of the original
        return FeatureMask, (self.p, self.features)


def drop_features(x: Node, p: float, packing: PackedWords | None = None) -> Node:
    """``x`` with one mask over its last two axes (time, features), shared by all sentences; with ``packing``
    ``x`` is ``(rows, width, features)``.

    Source: Marian's ``transformer-dropout``.
    """
    graph = graph_of("dropout", x)
    if packing is None:
        return dropout(x, rate(graph, p), axes=(-2, -1))
    return dropout(x, position_mask(graph, p, x.shape[-1], packing))


def position_mask(graph: Graph, p: float, features: int, packing: PackedWords) -> Node | None:
    """A mask for packed sentences, ``(rows, width, features)``: all sentences share the mask of a position;
    ``None`` without dropout."""
    mask = shared_mask(graph, p, (packing.length, features))
    return None if mask is None else at_positions(mask, packing)
