"""Word and position embeddings."""

from __future__ import annotations

import math
from typing import Protocol

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
    minimum,
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


class Positions(Protocol):
    """What tells a model where words stand."""

    def __call__(self, x: Node) -> Node:
        """``x (..., time, dim)`` with positions, which count from 0."""
        ...

    def at(self, x: Node, position: Node) -> Node:
        """The same for ``x`` of shape ``(..., dim)`` whose words all stand at one position, an integer node
        of shape ``()``."""
        ...


class PositionEmbedding:
    """``y[..., t, :] = sqrt(dim) x[..., t, :] + P[t, :]`` with sinusoids ``P``.

    ``x`` has the shape ``(..., time, dim)``; positions count from 0. No parameters. ``ShapeError`` for fewer
    than 3 features, for which the sinusoids are not defined, and for ``x`` with others than ``dim``.
    Source: Marian's transformer; ``mgraph.inits.sinusoidal_position_embeddings``.
    """

    def __init__(self, graph: ExpressionGraph, dim: int) -> None:
        if dim < 3:
            raise ShapeError(f"position embeddings need at least 3 features, got {dim}")
        self.graph, self.dim = graph, dim

    def __call__(self, x: Node) -> Node:
        if len(x.shape) < 2 or x.shape[-1] != self.dim:
            raise ShapeError(f"position embeddings of {self.dim} features for (..., time, dim) {x.shape}")
        table = self.graph.constant(x.shape[-2:], inits.sinusoidal_position_embeddings())
        return x * math.sqrt(self.dim) + table

    def at(self, x: Node, position: Node) -> Node:
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


class TrainedPositionEmbedding:
    """``y[..., t, :] = x[..., t, :] + P[min(t, positions - 1), :]`` with a table ``P`` that is trained.

    ``x`` has the shape ``(..., time, dim)``; positions count from 0, and all past the table have its last
    row. Parameter: the table ``{name} (positions, dim)``.
    Source: Marian, ``transformer-train-positions`` of ``transformer``, with which Marian 1.12 itself ends
    with an error, and ``transformer-train-position-embeddings`` of ``transformer-new``, where positions past
    the table are one.
    """

    def __init__(self, graph: ExpressionGraph, name: str, positions: int, dim: int) -> None:
        self.table = graph.param(name, (positions, dim), inits.glorot_uniform(fan_out=True))

    def __call__(self, x: Node) -> Node:
        places = np.minimum(np.arange(x.shape[-2]), self.table.shape[0] - 1)
        return x + rows(self.table, places.tolist())

    def at(self, x: Node, position: Node) -> Node:
        place = minimum(position, self.table.shape[0] - 1)
        return x + flatten(rows(self.table, reshape(place, (1,))))


class NoPositionEmbedding:
    """``y = scale x``: words without positions (``transformer-disable-position-embeddings``)."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def __call__(self, x: Node) -> Node:
        return x if self.scale == 1 else x * self.scale

    def at(self, x: Node, position: Node) -> Node:
        return self(x)
