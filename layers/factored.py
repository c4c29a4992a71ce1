"""Words that are made of factors: their embeddings, and their logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import accumulate
from operator import add
from typing import Any

import numpy as np

from mgraph import (
    ArgumentError,
    Node,
    ShapeError,
    Slice,
    cast,
    cross_entropy,
    dropout,
    flatten,
    index_select,
    inits,
    logsoftmax,
    reshape,
    slice,
)
from mgraph.tape import Graph

from .dropping import probability, rate
from .layer import Layer, of_class
from .layer import size as checked_size
from .output import Columns, Output
from .packing import PackedWords
from .products import table_rows


@dataclass(frozen=True)
class FactorGroups:
    """The lemmas and factors that the words of a factored vocabulary are made of.

    sizes: the number of factors in each group; the lemmas are the first group. has: for each lemma, the
        numbers of the other groups from which its words have a factor, in ascending order.

    Words are numbered lemma by lemma and, within a lemma, by their factors, with the last group's factor
    varying fastest. The rows of tables are numbered group by group. ``ArgumentError`` for sizes that are not
    ints of at least 0, and for groups that do not exist.
    """

    sizes: tuple[int, ...]
    has: tuple[tuple[int, ...], ...] = field(repr=False)

    def __post_init__(self) -> None:
        sizes, has = self.sizes, self.has
        tuples = isinstance(sizes, tuple) and isinstance(has, tuple)
        if not tuples or not sizes or not all(isinstance(groups, tuple) for groups in has):
            raise ArgumentError(
                "FactorGroups: expected a tuple of sizes, and a tuple of groups for each lemma, got "
                f"{sizes!r:.80} and {has!r:.80}"
            )
        for number in sizes:
            checked_size("FactorGroups: the size of a group", number, 0, error=ArgumentError)
        if len(has) != sizes[0]:
            raise ArgumentError(f"FactorGroups: expected the groups of {sizes[0]} lemmas, got {len(has)}")
        known = range(1, len(sizes))
        for groups in set(has):
            if [group for group in known if group in groups] != list(groups):
                raise ArgumentError(
                    f"FactorGroups: expected groups of {list(known)} for a lemma, in this order, got "
                    f"{groups!r:.80}"
                )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.sizes, self.has))

    @property
    def rows(self) -> int:
        """The number of lemmas and factors."""
        return sum(self.sizes)

    @cached_property
    def words(self) -> int:
        """The number of words: of all combinations of a lemma with its factors."""
        return sum(math.prod(self.sizes[group] for group in groups) for groups in self.has)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first row of each group."""
        return (0, *accumulate(self.sizes[:-1]))

    @cached_property
    def factors(self) -> np.ndarray:
        """Each word's factor in each group, -1 for none: int32 ``(words, groups)``."""
        found = np.full((self.words, len(self.sizes)), -1, np.int32)
        combinations: dict[tuple[int, ...], np.ndarray] = {}
        first = 0
        for lemma, own in enumerate(self.has):
            if own not in combinations:
                shape = tuple(self.sizes[group] for group in own)
                combinations[own] = np.indices(shape).reshape(len(shape), math.prod(shape)).T
            words = found[first : first + len(combinations[own])]
            words[:, 0] = lemma
            words[:, list(own)] = combinations[own]
            first += len(words)
        found.flags.writeable = False
        return found


class FactoredEmbedding(Layer):
    """The sum of the rows of a word's lemma and factors: ``y[..., :] = sum over g of E[first_g + f_g, :]``.

    ``ids`` is an integer node of any shape, with word numbers as ``groups`` defines them; ``y`` has one more
    axis of size ``dim``. Parameter: the table ``{name} (groups.rows, dim)``. ``dropout`` is the probability
    of dropping a lemma or a factor of a word; ``ArgumentError`` unless ``0 <= dropout < 1``.
    Source: Marian, ``layers/embedding.cpp`` (``--factors-combine sum``).
    """

    def __init__(self, name: str, groups: FactorGroups, dim: int, *, dropout: float = 0.0) -> None:
        self.groups = of_class(f"groups of {name!r}", groups, FactorGroups)
        self.dropout = probability(f"dropout of {name!r}", dropout)
        init = inits.glorot_uniform(fan_out=True)
        self.table = self.param(name, groups.rows, dim, init, contracted=1)

    def __call__(self, ids: Node, *, time_axis: int = 1, packing: PackedWords | None = None) -> Node:
        """``time_axis`` and ``packing`` are accepted as by ``Embedding`` but change nothing: factors of
        different sentences are dropped independently."""
        total = reduce(add, self._embedded(flatten(ids)))
        return reshape(total, (*ids.shape, total.shape[-1]))

    def _embedded(self, ids: Node) -> Iterator[Node]:
        """For each group, the rows of its factors in the words, or zeros, ``(words, dim)``."""
        for group, first in enumerate(self.groups.firsts):
            if self.groups.sizes[group]:
                factors, present = _looked_up(self.groups, group, ids)
                found = table_rows(self.table, factors + first)
                kept = dropout(reshape(present, (*ids.shape, 1)), rate(ids.graph, self.dropout))
                yield found * cast(kept, found.value_type)


class FactoredOutput(Output):
    """The log-probabilities of factored words: ``log p(word) = sum over g of log softmax(z_g)[f_g]``.

    ``z_g`` are the logits of the lemmas or factors in group ``g``: the group's columns of
    ``z = x Wt^T + b``. A word has a term for its lemma and for each factor. Words are numbered as ``groups``
    defines, and their log-probabilities are ``(..., groups.words)``; the probabilities sum to 1.

    Parameters: those of an ``Output`` for ``groups.rows``. No shortlists: ``ShapeError``.
    Source: Marian, ``layers/output.cpp`` and ``layers/logits.cpp``, without ``--lemma-dependency``. Marian's
    search chooses a lemma and then its factors; the best words are the same.
    """

    def __init__(self, prefix: str, dim: int, groups: FactorGroups, **rest: Any) -> None:
        self.groups = of_class(f"groups of {prefix!r}", groups, FactorGroups)
        super().__init__(prefix, dim, groups.rows, **rest)

    def __call__(self, x: Node, shortlist: Node | Columns | None = None) -> Node:
        if shortlist is not None:
            raise ShapeError("factored words take no shortlist")
        return reduce(add, self._log_probs(x))

    def cross_entropy(self, x: Node, labels: Node, label_smoothing: float = 0.0, *, parts: int = 1) -> Node:
        """``-log p`` of the words ``labels``, ``(..., 1)``; ``label_smoothing`` applies to lemmas only."""
        return reduce(add, self._costs(x, flatten(labels), label_smoothing))

    def of_listed(self, ids: Node) -> dict[str, Node]:
        raise ShapeError("factored words take no shortlist")

    def _log_probs(self, x: Node) -> Iterator[Node]:
        """For each group, its term of the log-probability of each word."""
        for group, logits in self._logits(x):
            factors, present = (_constant(x.graph, table) for table in _tables(self.groups, group))
            yield index_select(logsoftmax(logits), -1, factors) * cast(present, logits.value_type)

    def _costs(self, x: Node, labels: Node, label_smoothing: float) -> Iterator[Node]:
        """For each group, its part of the cost of each label."""
        for group, logits in self._logits(x):
            factors, present = _looked_up(self.groups, group, labels)
            costs = cross_entropy(logits, factors, 0.0 if group else label_smoothing)
            yield costs * cast(reshape(present, costs.shape), costs.value_type)

    def _logits(self, x: Node) -> Iterator[tuple[int, Node]]:
        """The logits of each group that has any, with its number."""
        logits = super().__call__(x)
        for group, (first, size) in enumerate(zip(self.groups.firsts, self.groups.sizes, strict=True)):
            if size:
                yield group, slice(logits, -1, Slice(first, first + size))


def _looked_up(groups: FactorGroups, group: int, words: Node) -> tuple[Node, Node]:
    """The factors of ``words (n,)`` in a group, 0 for none, and float32 1 where a word has one, else 0."""
    found, present = (
        index_select(_constant(words.graph, table), 0, words) for table in _tables(groups, group)
    )
    return found, present


def _tables(groups: FactorGroups, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Each word's factor in a group, 0 for none, and float32 1 where the word has one, else 0."""
    factors = groups.factors[:, group]
    return np.maximum(factors, 0), (factors >= 0).astype(np.float32)


def _constant(graph: Graph, table: np.ndarray) -> Node:
    node: Node = graph.constant(table.shape, inits.from_tensor(table), str(table.dtype))
    return node
