"""Word and position embeddings."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from mgraph import Node, ShapeError, Type, cast, cos, dropout, flatten, inits, minimum, reshape, rows, sin
from mgraph.ops.operands import axis_in, node

from .dropping import position_mask, probability, rate
from .layer import Layer, size
from .packing import PackedWords, at_positions
from .products import table_rows


class Embedding(Layer):
    """The rows of a table: ``y[..., :] = E[ids[...], :]``.

    ``ids`` is an integer node of any shape, ``y`` has one more axis of size ``dim``; ids beyond the table
    select NaN. Parameter: the table ``{name} (vocabulary, dim)``; Marian's names are ``encoder_Wemb``,
    ``decoder_Wemb`` and, shared, ``Wemb``. ``fixed`` excludes it from training (``embedding-fix-src``).
    ``dropout`` is the probability of dropping a whole word, at the same positions in all sentences
    (``dropout-src``, ``dropout-trg``); ``ArgumentError`` unless ``0 <= dropout < 1``.
    Source: Marian, ``layers/embedding.cpp``.
    """

    def __init__(
        self, name: str, dim_vocab: int, dim: int, *, fixed: bool = False, dropout: float = 0.0
    ) -> None:
        self.dropout = probability(f"dropout of {name!r}", dropout)
        init = inits.glorot_uniform(fan_out=True)
        self.table = self.param(name, dim_vocab, dim, init, fixed=fixed, contracted=1)

    def __call__(self, ids: Node, *, time_axis: int = 1, packing: PackedWords | None = None) -> Node:
        """``time_axis`` is the time axis of ``ids``, for dropout; ``ShapeError`` if it does not exist. For
        packed sentences ``ids`` is ``(rows, width)``."""
        found = table_rows(self.table, flatten(ids))
        words = reshape(found, (*ids.shape, found.shape[-1]))
        if packing is not None:
            return dropout(words, position_mask(ids.graph, self.dropout, 1, packing))
        p = rate(ids.graph, self.dropout)
        if not p:
            return words
        return dropout(words, p, axes=(axis_in(f"Embedding with {self.table.name!r}", ids, time_axis),))


class Positions(Layer):
    """Base of position embeddings."""

    @abstractmethod
    def __call__(self, x: Node) -> Node:
        """``x (..., time, dim)`` combined with embeddings of its positions, which count from 0."""

    @abstractmethod
    def packed(self, x: Node, packing: PackedWords) -> Node:
        """A call's result for packed sentences ``x (rows, width, dim)``."""

    @abstractmethod
    def at(self, x: Node, position: Node) -> Node:
        """A call's result for ``x (batch, beam, dim)`` at ``position``: integers ``(batch, 1, 1)``, a
        position for each sentence, or ``()``, one position for all sentences."""


class PositionEmbedding(Positions):
    """``y[..., t, :] = sqrt(dim) x[..., t, :] + P[t, :]`` with sinusoids ``P``.

    ``x`` has the shape ``(..., time, dim)``; positions count from 0. No parameters. ``ShapeError`` for fewer
    than 3 features, for which the sinusoids are undefined, and if ``x`` does not have ``dim`` features.
    Source: Marian's transformer; ``mgraph.inits.sinusoidal_position_embeddings``.
    """

    def __init__(self, dim: int) -> None:
        self.dim = size("features of position embeddings", dim, 3)

    def __call__(self, x: Node) -> Node:
        return self._scaled(x, 2) + self._table(x, x.shape[-2])

    def packed(self, x: Node, packing: PackedWords) -> Node:
        return self._scaled(x) + at_positions(self._table(x, packing.length), packing)

    def at(self, x: Node, position: Node) -> Node:
        sine = np.arange(self.dim) < self.dim // 2
        # Angles need float32 whatever the graph's element type is.
        frequencies, sines, cosines = (
            x.graph.constant((self.dim,), inits.from_vector(row), Type.float32)
            for row in (self._frequencies(), sine, ~sine)
        )
        angles = cast(position) * frequencies
        place = sin(angles) * sines + cos(angles) * cosines
        return self._scaled(x) + cast(place, x.value_type)

    def _scaled(self, x: Node, axes: int = 1) -> Node:
        return _words("position embeddings", x, self.dim, axes) * math.sqrt(self.dim)

    def _table(self, x: Node, length: int) -> Node:
        return x.graph.constant((length, self.dim), inits.sinusoidal_position_embeddings())

    def _frequencies(self) -> np.ndarray:
        """The angle per position of each feature, in radians."""
        half = self.dim // 2
        step = np.log(np.float32(10000.0)) / np.float32(self.dim / 2 - 1)
        return np.exp((np.arange(self.dim) % half).astype(np.float32) * -step)


class TrainedPositionEmbedding(Positions):
    """``y[..., t, :] = x[..., t, :] + P[min(t, positions - 1), :]`` with a trained table ``P``.

    ``x`` has the shape ``(..., time, dim)``; positions count from 0, and those past the table use its last
    row. Parameter: the table ``{name} (positions, dim)``. ``ShapeError`` if ``x`` does not have ``dim``
    features.
    Source: Marian, ``transformer-train-positions`` of ``transformer`` (an error in Marian 1.12), and
    ``transformer-train-position-embeddings`` of ``transformer-new``, where positions past the table are an
    error.
    """

    def __init__(self, name: str, positions: int, dim: int) -> None:
        self.table = self.param(name, positions, dim, inits.glorot_uniform(fan_out=True))

    def __call__(self, x: Node) -> Node:
        return self._checked(x, 2) + self._first(x, x.shape[-2])

    def packed(self, x: Node, packing: PackedWords) -> Node:
        return self._checked(x) + at_positions(self._first(x, packing.length), packing)

    def at(self, x: Node, position: Node) -> Node:
        places = flatten(minimum(position, int(self.table.shape[0]) - 1))
        found = rows(self.table.on(x.graph), places)
        return self._checked(x) + reshape(found, (*position.shape[:-1], x.shape[-1]))

    def _checked(self, x: Node, axes: int = 1) -> Node:
        return _words(f"position embeddings {self.table.name!r}", x, self.table.shape[1], axes)

    def _first(self, x: Node, length: int) -> Node:
        """The rows of the first positions, ``(length, dim)``."""
        places = np.minimum(np.arange(length), self.table.shape[0] - 1)
        return rows(self.table.on(x.graph), places.tolist())


class NoPositionEmbedding(Positions):
    """``y = scale x``: words without positions (``transformer-disable-position-embeddings``)."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def __call__(self, x: Node) -> Node:
        return x if self.scale == 1 else x * self.scale

    def packed(self, x: Node, packing: PackedWords) -> Node:
        return self(x)

    def at(self, x: Node, position: Node) -> Node:
        return self(x)


def _words(what: str, x: Node, dim: int, axes: int) -> Node:
    """``x``; ``ShapeError`` unless it has at least ``axes`` axes and ``dim`` features in the last,
    ``ElementTypeError`` if it is no node."""
    if len(node(what, x).shape) < axes or x.shape[-1:] != (dim,):
        raise ShapeError(f"{what} of {dim} features for (..., time, dim) {x.shape}")
    return x
