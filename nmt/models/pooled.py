"""``PooledModel``: a model that gives a few numbers for each line, such as a score or a sentence vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence

import jax

from mgraph import ExpressionGraph, Node, maximum, reshape, scalar_product, slice, sqrt
from nmt.models.model import Model
from nmt.models.parts import Source


class PooledModel(ABC):
    """Encoders whose states are pooled, with the parameters of a model file."""

    params: Mapping[str, jax.Array]
    """The parameters by name."""
    streams: int
    """How many sequences a line has."""
    numbers: int
    """How many numbers a line gets."""
    longest: int = 0
    """How many positions the model knows; 0 for any number."""

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Equal for models that compute the same function of their parameters."""

    @abstractmethod
    def blank_graph(self) -> ExpressionGraph:
        """A graph for inference, without values of parameters."""

    @abstractmethod
    def pooled(self, sources: Sequence[Source]) -> Node:
        """The numbers of each line, ``(batch, numbers)``, for one ``Source`` of each stream. They depend
        neither on padding nor on other lines."""


class SentenceVectors(PooledModel):
    """The vectors of sentences from the encoder of a translation model: its first state, ``(batch, dim)``.

    similarity: for pairs of sentences their cosine instead, ``(batch, 1)``, or 0 if that is negative.
    Source: Marian, ``SlicePooler`` and ``SimPooler`` in ``models/pooler.h`` (``marian embed``).
    """

    def __init__(self, model: Model, similarity: bool = False) -> None:
        self.model, self.similarity = model, similarity
        self.params, self.streams = model.params, 2 if similarity else 1
        self.numbers = 1 if similarity else model.dim_contexts[0]

    @property
    def key(self) -> Hashable:
        return type(self), self.similarity, self.model.key

    def blank_graph(self) -> ExpressionGraph:
        return self.model.blank_graph("jax")

    def pooled(self, sources: Sequence[Source]) -> Node:
        first, *others = (self._vector(source) for source in sources)
        return maximum(0.0, _cosine(first, *others)) if self.similarity else first

    def _vector(self, source: Source) -> Node:
        context = self.model.context(source).context
        batch, _, dim = context.shape
        return reshape(slice(context, 1, 0), (batch, dim))


def _cosine(a: Node, b: Node) -> Node:
    """``a b / (|a| |b|)`` along the last axis, which then has size 1."""
    norms = sqrt(scalar_product(a, a, -1)) * sqrt(scalar_product(b, b, -1))
    return scalar_product(a, b, -1) / norms
