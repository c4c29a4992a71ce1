"""Layers by their formulas in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgraph import ExpressionGraph, Node


def draws(seed: int) -> Callable[..., np.ndarray]:
    """A function that draws an array of the given shape: normal numbers, different ones in each call."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def random_params(graph: ExpressionGraph) -> dict[str, np.ndarray]:
    """Give every parameter a random value, biases and gains too; return the values as float64."""
    draw = draws(1)
    for node in graph.params().values():
        node.set_value(
            0.5 * draw(*node.shape) + (1.0 if "gamma" in node.name or "scale" in node.name else 0.0)
        )
    return {name: np.asarray(node.val(), np.float64) for name, node in graph.params().items()}


def close(node: Node, expected: np.ndarray) -> None:
    assert node.shape == expected.shape
    np.testing.assert_allclose(node.val(), expected, rtol=2e-5, atol=2e-6)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normed(x: np.ndarray, gain: np.ndarray, bias: np.ndarray | float, eps: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return gain * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) + bias
