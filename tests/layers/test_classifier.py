"""The layers by themselves: a sequence classifier that has nothing to do with translation."""

from __future__ import annotations

import numpy as np

import layers
import mgraph
from mgraph import Adam, ExpressionGraph, Node, inits

WORDS, MARK, CLASSES, TIME, BATCH = 6, 5, 4, 7, 32
RNG = np.random.default_rng(7)


def draw() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words and a mark before one of them, time-major and padded with 0; a mask; the marked word."""
    ids = RNG.integers(1, MARK, (TIME, BATCH))
    lengths = RNG.integers(3, TIME + 1, BATCH)
    marks = RNG.integers(0, lengths - 1)
    ids[marks, np.arange(BATCH)] = MARK
    ids[np.arange(TIME)[:, None] >= lengths] = 0
    return ids, (ids > 0)[..., None].astype(np.float32), ids[marks + 1, np.arange(BATCH)] - 1


def classify(graph: ExpressionGraph, ids: np.ndarray, mask: np.ndarray) -> Node:
    """Logits ``(batch, classes)``, from the last states of a network in each direction."""
    words = layers.Embedding("Wemb", WORDS, 8)(indices(graph, ids), time_axis=0)
    shown = graph.constant(mask.shape, inits.from_tensor(mask))
    forward = layers.RNN(layers.GRU, "forward", 8, 12, dropout=0.1)(words, shown)
    backward = layers.RNN(layers.LSTM, "backward", 8, 12, direction="backward")(words, shown)
    hidden = layers.Dense("hidden", [12, 12], 12, activation="tanh")(
        forward.states[0][0], backward.states[0][0]
    )
    return layers.Dense("output", 12, CLASSES)(hidden)


def indices(graph: ExpressionGraph, values: np.ndarray) -> Node:
    return graph.constant(values.shape, inits.from_tensor(values.astype(np.uint32)), "uint32")


def test_a_classifier_learns() -> None:
    graph, optimizer = ExpressionGraph(seed=3), Adam(0.03)
    costs = []
    for _ in range(60):
        graph.clear()
        ids, mask, labels = draw()
        cost = mgraph.mean(mgraph.cross_entropy(classify(graph, ids, mask), indices(graph, labels)))
        graph.backprop()
        optimizer.update(graph)
        costs.append(cost.scalar())
    assert abs(costs[0] - np.log(CLASSES)) < 0.2 and costs[-1] < 0.1

    graph.clear()
    graph.set_inference(True)
    ids, mask, labels = draw()
    logits = classify(graph, ids, mask)
    graph.forward()
    assert (np.argmax(logits.val(), -1) == labels).mean() > 0.9
