"""Graphs that look like the pattern of a rewrite, but must stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, inits
from mgraph.rewriting import DEFAULT, optimize
from tests.helpers.rewritten import (
    LABELS,
    ONEHOT,
    Build,
    constant,
    labels,
    left,
    logits,
    numbers,
    param,
    w,
    x2,
)

UNLIKE: dict[str, Build] = {
    "logsumexp along another axis": lambda g: logits(g) - mgraph.logsumexp(logits(g), 1),
    "logsumexp of another node": lambda g: logits(g) - mgraph.logsumexp(mgraph.tanh(logits(g)), -1),
    "softmax along another axis": lambda g: mgraph.log(mgraph.softmax(logits(g), 1)),
    "sum along another axis": lambda g: (
        mgraph.exp(logits(g)) / mgraph.sum(mgraph.exp(mgraph.tanh(logits(g))), -1)
    ),
    "gather along another axis": lambda g: (
        -mgraph.gather(
            mgraph.logsoftmax(logits(g)),
            1,
            g.constant((2, 1, 4), inits.from_vector([0, 1, 2, 0] * 2), "uint32"),
        )
    ),
    "one label for all rows": lambda g: (
        -mgraph.gather(mgraph.logsoftmax(logits(g)), -1, g.constant((1, 1, 1), inits.from_value(2), "uint32"))
    ),
    "two labels per row": lambda g: (
        -mgraph.gather(
            mgraph.logsoftmax(logits(g)), -1, g.constant((2, 3, 2), inits.from_vector(LABELS * 2), "uint32")
        )
    ),
    "labels from the end": lambda g: (
        -mgraph.gather(
            mgraph.logsoftmax(logits(g)),
            -1,
            g.constant((2, 3, 1), inits.from_vector([-1, 0, 1, 2, 3, 0]), "int32"),
        )
    ),
    "weights that are no labels": lambda g: (
        -mgraph.sum(constant(g, numbers(2, 3, 4)) * mgraph.logsoftmax(logits(g)), -1)
    ),
    "rows without a label": lambda g: (
        -mgraph.sum(constant(g, ONEHOT * [[[1], [1], [0]]]) * mgraph.logsoftmax(logits(g)), -1)
    ),
    "unequal smoothing": lambda g: (
        -mgraph.sum(
            constant(g, ONEHOT * [[[0.8], [0.8], [1]]] + [[[0.05], [0.05], [0]]])
            * mgraph.logsoftmax(logits(g)),
            -1,
        )
    ),
    "one hot along another axis": lambda g: (
        -mgraph.sum(constant(g, ONEHOT) * mgraph.logsoftmax(logits(g)), 1)
    ),
    "smoothing that is not one in all": lambda g: (
        mgraph.cross_entropy(logits(g), labels(g)) * 0.9 - mgraph.mean(mgraph.logsoftmax(logits(g)), -1) * 0.2
    ),
    "smoothing along another axis": lambda g: (
        mgraph.cross_entropy(logits(g), labels(g)) * 0.9 - mgraph.mean(mgraph.logsoftmax(logits(g)), 1) * 0.1
    ),
    "smoothing twice": lambda g: (
        mgraph.cross_entropy(logits(g), labels(g), 0.2) * 0.9
        - mgraph.mean(mgraph.logsoftmax(logits(g)), -1) * 0.1
    ),
    "another shift": lambda g: mgraph.softmax(logits(g) - mgraph.max(logits(g), 0)),
    "minimum": lambda g: mgraph.softmax(logits(g) - mgraph.min(logits(g), -1)),
    "bias per row": lambda g: mgraph.dot(x2(g), w(g)) + param(g, "b", 4, 1),
    "one bias for all": lambda g: mgraph.dot(x2(g), w(g)) + param(g, "b", 1),
    "bias of every element": lambda g: mgraph.dot(x2(g), w(g)) + param(g, "b", 4, 5),
    "bias with more axes": lambda g: mgraph.dot(x2(g), w(g)) + param(g, "b", 1, 1, 5),
    "transposed batch": lambda g: mgraph.dot(mgraph.transpose(param(g, "x", 2, 3, 4)), w(g)),
    "other axes": lambda g: mgraph.bdot(
        mgraph.transpose(param(g, "x", 3, 2, 4), (1, 0, 2)), param(g, "y", 2, 4, 5)
    ),
    "broadcasting one": lambda g: mgraph.tanh(param(g, "x", 3) * g.ones((1, 1))),
    "many ones": lambda g: mgraph.tanh(x2(g) * g.ones((4, 3))),
    "named one": lambda g: mgraph.tanh(x2(g) * g.constant((1,), inits.ones(), name="rate")),
    "rounding trick": lambda g: mgraph.tanh(x2(g) + 2.0**52 - 2.0**52),
    "overflow": lambda g: mgraph.tanh(x2(g) * 1e-200 * 1e-200),
    "random": lambda g: mgraph.tanh(x2(g)) * (g.dropout_mask(0.5, (4, 3)) + g.ones((4, 3))),
    "named constants": lambda g: (
        x2(g) + mgraph.exp(g.constant((3,), inits.from_vector([1, 2, 3]), name="scale"))
    ),
    "constants that would grow": lambda g: (
        mgraph.tanh(param(g, "x", 1, 1)) * mgraph.sum(g.ones((200, 1)) + g.zeros((1, 200)), 0)
    ),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_only_looks_alike_stays(name: str) -> None:
    build = UNLIKE[name]
    assert left(build, DEFAULT) == left(build, ())


def test_a_trained_constant_keeps_its_gradient(graph: ExpressionGraph) -> None:
    one, onehot = graph.ones((1,)), graph.constant(ONEHOT.shape, inits.from_tensor(ONEHOT))
    x = graph.constant(ONEHOT.shape, inits.from_value(2.0), name="x")
    for leaf in (one, onehot):
        leaf.set_trainable(True)
    mgraph.sum(-mgraph.sum(onehot * mgraph.logsoftmax(x * one), -1), (0, 1))
    assert not optimize(graph)
    graph.backprop()
    np.testing.assert_allclose(onehot.grad(), np.full(ONEHOT.shape, np.log(4)), rtol=1e-6)


def test_a_user_s_function_is_not_folded(graph: ExpressionGraph) -> None:
    seen = []
    view = mgraph.callback(graph.ones((2,)) + graph.ones((2,)), lambda n: seen.append(n.val()))
    total = mgraph.lambda_node([graph.ones((2,))], (2,), "float32", lambda a: 2 * a)
    assert {c.rule for c in optimize(graph).changes} == {"constant_folding"}
    assert view.type == "callback" and total.type == "lambda"
    graph.forward()
    np.testing.assert_array_equal(seen, [[2, 2]])


def test_integers_wrap_as_they_did(graph: ExpressionGraph) -> None:
    x = graph.input("x", (3,), "uint8")
    y = -(x * 100) * 3 + 250 + 9
    expected = graph.function(y, [x])(np.uint8([1, 2, 77]))
    assert optimize(graph)
    np.testing.assert_array_equal(graph.function(y, [x])(np.uint8([1, 2, 77])), expected)
