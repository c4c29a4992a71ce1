"""Word and position embeddings."""

from __future__ import annotations

import math

import numpy as np

from mgraph import (
    ExpressionGraph,
    Node,
    ShapeError,
    Type,
    cast,
    cos,
    dropout,
    flatten,
    inits,
    reshape,
    rows,
    sin,
)

from .dropping import rate


class Embedding:
    """The rows of a table: ``y[..., :] = E[ids[...], :]``.

    ``ids`` is an integer node of any shape, ``y`` has one more axis of size ``dim``. Parameter: the table
    ``{name} (vocabulary, dim)``; Marian's names are ``encoder_Wemb``, ``decoder_Wemb`` and, shared,
    ``Wemb``. ``fixed`` keeps it from being trained (``embedding-fix-src``). ``dropout`` drops whole words,
    the same places along ``time_axis`` in all sentences (``dropout-src``, ``dropout-trg``).
    Source: Marian, ``layers/embedding.cpp``.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        name: str,
        dim_vocab: int,
        dim: int,
        *,
        fixed: bool = False,
        dropout: float = 0.0,
        time_axis: int = 1,
    ) -> None:
        init = inits.glorot_uniform(fan_out=True)
        self.graph, self.dropout, self.time_axis = graph, dropout, time_axis
        self.table = graph.param(name, (dim_vocab, dim), init, fixed=fixed)

    def __call__(self, ids: Node) -> Node:
        words = reshape(rows(self.table, flatten(ids)), (*ids.shape, self.table.shape[-1]))
        return dropout(words, rate(self.graph, self.dropout), axes=(self.time_axis,))


class PositionEmbedding:
    """``y[..., t, :] = sqrt(dim) x[..., t, :] + P[t, :]`` with sinusoids ``P``.

    ``x`` has the shape ``(..., time, dim)``; positions count from 0. No parameters. ``ShapeError`` for fewer
    than 3 features, for which the sinusoids are not defined.
    Source: Marian's transformer; ``mgraph.inits.sinusoidal_position_embeddings``.
    """

    def __init__(self, graph: ExpressionGraph, dim: int) -> None:
        if dim < 3:
            raise ShapeError(f"position embeddings need at least 3 features, got {dim}")
        self.graph, self.dim = graph, dim

    def __call__(self, x: Node) -> Node:
        table = self.graph.constant(x.shape[-2:], inits.sinusoidal_position_embeddings())
        return x * math.sqrt(self.dim) + table

    def at(self, x: Node, position: Node) -> Node:
        """The same for ``x`` of shape ``(..., dim)`` whose words all stand at one position, an integer node
        of shape ``()``."""
        sine = np.arange(self.dim) < self.dim // 2
        angles = cast(position) * self._constant(self._frequencies())
        place = sin(angles) * self._constant(sine) + cos(angles) * self._constant(~sine)
        return x * math.sqrt(self.dim) + cast(place, x.value_type)

    def _constant(self, values: np.ndarray) -> Node:
        """A row of float32, which angles need whatever the graph's element type is."""
        return self.graph.constant((self.dim,), inits.from_vector(values), Type.float32)

    def _frequencies(self) -> np.ndarray:
        """By how much the angle of each feature grows per position, in radians."""
        half = self.dim // 2
        step = np.log(np.float32(10000.0)) / np.float32(self.dim / 2 - 1)
        return np.exp((np.arange(self.dim) % half).astype(np.float32) * -step)
