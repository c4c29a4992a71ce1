"""Graphs that are rewritten in tests: their leaves, and what they compute before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from mgraph import ExpressionGraph, Node, inits
from mgraph.rewriting import DEFAULT, Report, optimize

Build = Callable[[ExpressionGraph], Node]
LABELS = [3, 0, 2, 2, 1, 0]
ONEHOT = np.eye(4)[LABELS].reshape(2, 3, 4)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def param(graph: ExpressionGraph, name: str, *shape: int) -> Node:
    return graph.param(name, shape, inits.from_tensor(numbers(*shape, seed=len(name) + ord(name[0]))))


def logits(graph: ExpressionGraph) -> Node:
    return param(graph, "x", 2, 3, 4)


def labels(graph: ExpressionGraph, *shape: int, type: str = "uint32") -> Node:
    return graph.constant(shape or (2, 3, 1), inits.from_vector(LABELS), type)


def below(top: Node) -> list[str]:
    """Types of the operators that ``top`` needs."""
    found: dict[Node, None] = {}
    pending = [top]
    while pending:
        node = pending.pop()
        if node.children and node not in found:
            found[node] = None
            pending += node.children
    return sorted(n.type for n in found)


def x2(graph: ExpressionGraph) -> Node:
    return param(graph, "x", 4, 3)


def w(graph: ExpressionGraph) -> Node:
    return param(graph, "w", 3, 5)


def b(graph: ExpressionGraph) -> Node:
    return param(graph, "b", 1, 5)


def constant(graph: ExpressionGraph, value: Any) -> Node:
    array = np.asarray(value, np.float64)
    return graph.constant(array.shape, inits.from_tensor(array))


class Computed(NamedTuple):
    value: np.ndarray
    gradients: dict[str, np.ndarray]
    """Of a weighted sum of the value, by parameter."""
    operators: list[str]
    report: Report | None


def computed(build: Build, rewrite: bool, type: str = "float64", rules: Any = DEFAULT) -> Computed:
    """Build a graph, rewrite it or not, and compute its value and gradients."""
    graph = ExpressionGraph()
    graph.set_default_element_type(type)
    top = build(graph)
    weights = graph.constant(top.shape, inits.from_tensor(numbers(*top.shape, seed=9)), top.value_type)
    weighted = top * weights
    report = optimize(graph, rules) if rewrite else None
    f = graph.function([weighted, top], [])

    def loss(params: Any) -> tuple[Any, Any]:
        total, value = f.pure(params, key=jax.random.key(0))
        return jnp.sum(total), value

    with jax.enable_x64(True):
        gradients, value = jax.grad(loss, has_aux=True)(graph.params().vals())
    by_name = {name: np.asarray(g) for name, g in gradients.items()}
    return Computed(np.asarray(value), by_name, below(weighted.child(0)), report)


def check(build: Build, *types: str, rules: Any = DEFAULT) -> Report:
    """Assert that rewriting changes neither value nor gradients and leaves operators of these types."""
    before, after = computed(build, rewrite=False), computed(build, rewrite=True, rules=rules)
    chex.assert_trees_all_close(after.value, before.value, rtol=1e-12, atol=1e-12)
    chex.assert_trees_all_close(after.gradients, before.gradients, rtol=1e-10, atol=1e-10)
    assert after.operators == sorted(types), str(after.report)
    assert after.report is not None
    return after.report


def left(build: Build, rules: Any) -> list[str]:
    """The types of the operators that ``rules`` leave in the graph."""
    graph = ExpressionGraph()
    top = build(graph)
    weighted = top * graph.constant(top.shape, inits.from_tensor(numbers(*top.shape)), top.value_type)
    optimize(graph, rules)
    return below(weighted.child(0))
