"""How layers drop out: nothing in inference, and one mask wherever steps or sentences share one."""

from __future__ import annotations

from collections.abc import Sequence

from mgraph import ExpressionGraph, Node, dropout
from mgraph.tape import Graph


def rate(graph: Graph, p: float) -> float:
    """The probability ``p`` in a training graph, 0 in inference."""
    return 0.0 if graph.is_inference() else p


def shared_mask(graph: ExpressionGraph, p: float, shape: Sequence[int]) -> Node | None:
    """A mask that several uses of ``mgraph.dropout`` share; ``None`` where nothing is dropped."""
    probability = rate(graph, p)
    return graph.dropout_mask(probability, tuple(shape)) if probability else None


def drop_features(x: Node, p: float) -> Node:
    """``x`` with one mask over its last two axes (time, features), shared by all sentences.

    Source: Marian's ``transformer-dropout``.
    """
    return dropout(x, rate(x.graph, p), axes=(-2, -1))
