"""Random graphs of operators that can be rewritten: no value or gradient changes, and one pass is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import mgraph
from mgraph import ExpressionGraph, Node, inits
from mgraph.rewriting import optimize
from mgraph.running.interpreter import Interpreter
from tests.helpers.rewritten import param

UNARY: tuple[Callable[[Node], Node], ...] = (
    lambda n: n * 2.0,
    lambda n: n * -0.5,
    lambda n: n * -1.0,
    lambda n: n + 1.0,
    lambda n: n - 0.5,
    lambda n: -n,
    mgraph.tanh,
    mgraph.softmax,
    mgraph.logsoftmax,
    lambda n: mgraph.log(mgraph.softmax(n)),
    lambda n: mgraph.log(mgraph.exp(mgraph.tanh(n))),
    lambda n: mgraph.log(mgraph.sum(mgraph.exp(mgraph.tanh(n)), -1)) + n * 0.5,
    lambda n: n - mgraph.logsumexp(n, -1),
    lambda n: n - mgraph.logsumexp(n, 0),
    lambda n: mgraph.softmax(n - mgraph.max(n, -1)),
    lambda n: mgraph.exp(mgraph.tanh(n)) / mgraph.sum(mgraph.exp(mgraph.tanh(n)), -1),
    lambda n: mgraph.transpose(mgraph.transpose(n)),
    lambda n: mgraph.reshape(mgraph.flatten(mgraph.transpose(n)), (3, 3)),
    lambda n: n * n.graph.ones((1,)),
    lambda n: n + n.graph.zeros((1, 1)),
    lambda n: n * mgraph.exp(n.graph.constant((1, 3), inits.from_vector([0.1, 0.2, 0.3]), "float64")),
    lambda n: (
        -mgraph.gather(
            mgraph.logsoftmax(n), -1, n.graph.constant((3, 1), inits.from_vector([2, 0, 1]), "uint32")
        )
        + n
    ),
    lambda n: (
        mgraph.logsumexp(n, -1)
        - mgraph.gather(n, -1, n.graph.constant((3, 1), inits.from_vector([2, 0, 1]), "uint32"))
        - n
    ),
    lambda n: n - mgraph.sum(n.graph.constant((3, 3), inits.eye(), "float64") * mgraph.logsoftmax(n), -1),
    lambda n: mgraph.stop_gradient(n) + n,
)
BINARY: tuple[Callable[[Node, Node], Node], ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: mgraph.tanh(a) * mgraph.tanh(b),
    lambda a, b: mgraph.dot(mgraph.tanh(a), b),
    lambda a, b: mgraph.dot(a, mgraph.transpose(mgraph.tanh(b))),
    lambda a, b: mgraph.transpose(mgraph.dot(mgraph.tanh(a), b, trans_a=True)) * 0.5,
    lambda a, b: mgraph.bdot(mgraph.transpose(mgraph.tanh(a)), b),
    lambda a, b: (
        mgraph.dot(mgraph.tanh(a), mgraph.tanh(b)) + a.graph.param("b", (1, 3), inits.from_vector([1, 2, 3]))
    ),
)


def random_graph(steps: list[tuple[int, int, int]]) -> tuple[ExpressionGraph, Node]:
    """A graph of matrices in which each step applies an operation to earlier nodes."""
    graph = ExpressionGraph()
    graph.set_default_element_type("float64")
    nodes: list[Node] = [param(graph, "p", 3, 3), param(graph, "q", 3, 3) * 0.5]
    for operation, i, j in steps:
        a, b = nodes[-1 - i % len(nodes)], nodes[-1 - j % len(nodes)]
        if operation < len(UNARY):
            nodes.append(UNARY[operation](a))
        else:
            nodes.append(BINARY[operation - len(UNARY)](a, b))
    top = mgraph.sum(mgraph.flatten(mgraph.tanh(mgraph.tanh(nodes[-1]) + mgraph.tanh(nodes[-2]))))
    return graph, top


STEPS = st.lists(
    st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    max_size=9,
)
MARKS = st.lists(st.tuples(st.integers(0, 50), st.sampled_from(("keep", "freeze", "checkpoint"))), max_size=2)


def evaluated(graph: ExpressionGraph, nodes: list[Node], top: Node) -> tuple[list[Any], list[Any]]:
    """The values of the nodes, and the gradients of ``top`` with respect to the trainable ones."""
    leaves = {i: graph.tape.nodes[i].leaf_value() for i in graph.tape.inputs}
    run = Interpreter(graph.tape.structure(), leaves.__getitem__, "rules", None, {})
    values = [np.asarray(run.value(n.id)) for n in nodes]
    return values, [np.asarray(run.adjoint(n.id, top.id)) if n.trainable else None for n in nodes]


@given(STEPS, MARKS)
def test_random_graphs_keep_their_values_and_gradients(
    steps: list[tuple[int, int, int]], marks: list[tuple[int, str]]
) -> None:
    results = []
    for rewrite in (False, True):
        graph, top = random_graph(steps)
        nodes, kept = list(graph.tape.nodes), []
        for i, mark in marks:
            node = nodes[i % len(nodes)]
            if mark == "keep":
                kept.append(node)
            elif mark == "checkpoint":
                node.mark_checkpoint()
            elif node is not top:
                node.set_trainable(False)
        if rewrite:
            report = optimize(graph, keep=kept)
            assert report.operators_after <= report.operators_before
            assert not (twice := optimize(graph, keep=kept)), f"{report}\nthen {twice}"
        results.append(evaluated(graph, nodes, top))
    (values, gradients), (new_values, new_gradients) = results
    for node, old, new in zip(nodes, values, new_values, strict=True):
        np.testing.assert_allclose(
            new, old, rtol=1e-12, atol=1e-12 * (1 + np.abs(old).max()), err_msg=repr(node)
        )
    for node, old, new in zip(nodes, gradients, new_gradients, strict=True):
        assert (old is None) == (new is None)
        # An absorbed node has no gradient to compare; a kept one always has.
        if old is not None and (node in kept or getattr(node, "absorbed_by", None) is None):
            np.testing.assert_allclose(
                new, old, rtol=1e-10, atol=1e-10 * (1 + np.abs(old).max()), err_msg=repr(node)
            )
