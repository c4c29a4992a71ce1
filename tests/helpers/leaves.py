"""Small graphs for tests: leaves with given values, values and gradients read back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mgraph
from mgraph import ExpressionGraph, Node, inits


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def param(graph: ExpressionGraph, values: Any, name: str = "x", type: str = "float32") -> Node:
    """A parameter with these values."""
    array = np.asarray(values, np.float64)
    return graph.param(name, array.shape, inits.from_tensor(array), type)


def constant(graph: ExpressionGraph, values: Any, type: str = "float32") -> Node:
    array = np.asarray(values)
    return graph.constant(array.shape, inits.from_tensor(array), type)


def value(node: Node) -> np.ndarray:
    """The node's value as numpy."""
    node.graph.forward()
    return np.asarray(node.val())


def gradient(top: Node, leaf: Node) -> np.ndarray:
    """The gradient of the sum of ``top`` with respect to ``leaf``."""
    function, params = top.graph.function(top, [leaf]), top.graph.params().vals()
    return np.asarray(jax.grad(lambda v: jnp.sum(function.pure(params, [v])))(leaf.leaf_value()))


def tutorial() -> tuple[ExpressionGraph, Node, Node]:
    """The graph that the README begins with, its parameter x, and its top."""
    graph = ExpressionGraph()
    x = graph.param("x", (1, 1), inits.from_value(2))
    y = graph.constant((1, 1), inits.from_value(3))
    return graph, x, x * y + mgraph.sin(x)
