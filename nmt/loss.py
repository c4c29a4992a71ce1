"""The loss that training minimises, as a node of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgraph import ExpressionGraph, Node, Type, cross_entropy, flatten, inits, reshape, sum
from nmt.data.batches import PaddedBatch
from nmt.models import Model, Source


def cross_entropy_loss(
    graph: ExpressionGraph,
    model: Model,
    sources: Sequence[PaddedBatch],
    target: PaddedBatch,
    label_smoothing: float = 0.0,
) -> Node:
    """The cross entropy of all target words, ``</s>`` included, summed, in nats; shape (1,).

    The model is recorded in ``graph``, in the graph's element type, with one batch of ``sources`` for each of
    its source streams. Padding counts nothing, nor do rows after the first ``size``. Divide by
    ``word_count(target)`` for the mean of a word.

    Source: Marian, ``--cost-type ce-sum`` and ``--label-smoothing``.
    """

    def constant(array: np.ndarray, kind: Type) -> Node:
        return graph.constant(array.shape, inits.from_tensor(array), kind)

    ids = constant(target.ids, Type.int32)
    kind = graph.default_element_type
    words = [Source(constant(s.ids, Type.int32), constant(s.mask, kind)) for s in sources]
    encoded = model.encode(graph, words)
    costs = cross_entropy(model.logits(graph, encoded, ids), flatten(ids), label_smoothing)
    counted = constant(_counted(target), costs.value_type)
    return sum(flatten(reshape(costs, target.ids.shape) * counted))


def word_count(target: PaddedBatch) -> int:
    """The number of words that ``cross_entropy_loss`` sums over."""
    return int(_counted(target).sum())


def _counted(batch: PaddedBatch) -> np.ndarray:
    real = np.arange(len(batch.ids))[:, None] < batch.size
    return np.where(real, batch.mask, 0)
