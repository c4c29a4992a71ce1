"""Embeddings of factored words, against their formula."""

from __future__ import annotations

import numpy as np

from layers import FactoredEmbedding, FactoredOutput, FactorGroups
from mgraph import ExpressionGraph, Node, check_gradients, flatten, inits, sum

GROUPS = FactorGroups((3, 2, 3), ((), (1,), (1, 2)))
FACTORS = [[0], [1, 3], [1, 4], *([2, first, second] for first in (3, 4) for second in (5, 6, 7))]
"""The rows of each word: lemmas start at 0, factors at 3 and at 5."""
IDS = np.array([[8, 0, 1], [4, 2, 5]])


def embedded(graph: ExpressionGraph, ids: np.ndarray, dropout: float = 0.0) -> Node:
    node = graph.constant(ids.shape, inits.from_tensor(ids.astype(np.int32)), "int32")
    return FactoredEmbedding("Wemb", GROUPS, 4, dropout=dropout)(node)


def table_of(graph: ExpressionGraph) -> np.ndarray:
    table = graph.get("Wemb")
    assert table is not None
    return np.asarray(table.val())


def test_a_word_is_the_sum_of_its_factors() -> None:
    graph = ExpressionGraph(seed=2)
    found = embedded(graph, IDS)
    graph.forward()
    table = table_of(graph)
    assert table.shape == (GROUPS.rows, 4) and GROUPS.words == len(FACTORS)
    assert GROUPS.factors[:4].tolist() == [[0, -1, -1], [1, 0, -1], [1, 1, -1], [2, 0, 0]]
    expected = [[np.sum(table[FACTORS[word]], axis=0) for word in sentence] for sentence in IDS]
    np.testing.assert_allclose(np.asarray(found.val()), expected, rtol=1e-6)


def test_gradients() -> None:
    graph = ExpressionGraph(seed=2)
    found = embedded(graph, IDS)
    assert check_gradients(sum(flatten(found * found)))


def test_factors_are_dropped_alone() -> None:
    graph = ExpressionGraph(seed=3)
    found = embedded(graph, np.full((1, 200), 8), dropout=0.5)
    graph.forward()
    rows = table_of(graph)[[2, 4, 7]]
    possible = np.array([2 * np.array(bits) @ rows for bits in np.ndindex(2, 2, 2)])
    distances = np.abs(np.asarray(found.val())[0][:, None] - possible).max(-1)
    np.testing.assert_allclose(distances.min(-1), 0, atol=1e-5)
    assert set(distances.argmin(-1)) == set(range(8))


def test_probabilities_of_words_sum_to_one() -> None:
    graph = ExpressionGraph(seed=4)
    output = FactoredOutput("out", 4, GROUPS)
    x = graph.constant((2, 3, 4), inits.uniform(-3, 3))
    labels = graph.constant((2, 3), inits.from_tensor(IDS.astype(np.int32)), "int32")
    found, costs, smooth = output(x), output.cross_entropy(x, labels), output.cross_entropy(x, labels, 0.1)
    graph.forward()
    logits = np.asarray(x.val()) @ np.asarray(output.weight.on(graph).val()).T
    parts = np.split(logits, [3, 5], -1)
    normal = np.concatenate([part - np.log(np.exp(part).sum(-1, keepdims=True)) for part in parts], -1)
    expected = np.stack([normal[..., rows].sum(-1) for rows in FACTORS], -1)
    np.testing.assert_allclose(np.asarray(found.val()), expected, rtol=1e-5)
    np.testing.assert_allclose(np.exp(expected).sum(-1), 1, rtol=1e-6)
    own = np.take_along_axis(expected, IDS[..., None], -1)
    np.testing.assert_allclose(np.asarray(costs.val()), -own, rtol=1e-5)
    lemmas = np.take_along_axis(normal, GROUPS.factors[IDS][..., :1], -1)
    smoothed = 0.1 * (lemmas - normal[..., :3].mean(-1, keepdims=True))
    np.testing.assert_allclose(np.asarray(smooth.val()), smoothed - own, rtol=1e-5)


def test_gradients_of_the_costs() -> None:
    graph = ExpressionGraph(seed=4)
    x = graph.param("x", (2, 3, 4), inits.uniform(-1, 1))
    labels = graph.constant((2, 3), inits.from_tensor(IDS.astype(np.int32)), "int32")
    costs = FactoredOutput("out", 4, GROUPS).cross_entropy(x, labels, 0.1)
    assert check_gradients(sum(flatten(costs)))
