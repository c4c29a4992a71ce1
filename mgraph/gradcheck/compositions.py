"""Operators one after the other, as models have them: what a compiler fuses, and may fuse wrongly."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..cases import Case
from ..node import Node
from ..ops.arithmetic import mult, plus
from ..ops.cells import gru_ops, highway
from ..ops.elementwise import gelu, relu, sigmoid, square, swish, tanh
from ..ops.index import rows
from ..ops.norm import layer_norm, rms_norm
from ..ops.product import affine, bdot, dot
from ..ops.reduce import mean, sum
from ..ops.scan import scan
from ..ops.softmax import cross_entropy, logsoftmax, softmax, softmax_cross_entropy
from .subjects import Subject


def _product_square_sum(x: jax.Array, m: jax.Array) -> jax.Array:
    """The program of issue 39103 of jax-ml/jax, in JAX's own words."""
    return jnp.sum((m @ x) ** 2)


def _squares_of_product(x: Node, w: Node) -> Node:
    return sum(square(dot(x, w)), -1)


def _attention(q: Node, k: Node, v: Node) -> Node:
    return bdot(softmax(bdot(q, k, trans_b=True, scale=0.35)), v)


def _softmax_chain(x: Node) -> Node:
    return logsoftmax(mult(softmax(x), 4.0))


def _feed_forward(x: Node, w: Node, b: Node, v: Node, c: Node, gamma: Node, beta: Node) -> Node:
    return layer_norm(plus(x, affine(relu(affine(x, w, b)), v, c)), gamma, beta, 1e-6)


def _gated(x: Node, w: Node, v: Node, gamma: Node) -> Node:
    normed = rms_norm(x, gamma, None, 1e-6)
    return mult(swish(dot(normed, w)), gelu(dot(normed, v)))


def _norms_of_a_norm(x: Node, gamma: Node) -> Node:
    return mean(square(layer_norm(rms_norm(x, gamma, None, 1e-6), gamma, None, 1e-6)), -1)


def _classified(x: Node, w: Node, b: Node, ids: Node) -> Node:
    return cross_entropy(affine(x, w, b), ids)


def _smoothed(logits: Node, ids: Node) -> Node:
    return cross_entropy(logits, ids, 0.1)


def _distilled(logits: Node, teacher: Node) -> Node:
    return softmax_cross_entropy(logits, softmax(teacher))


def _embedded(table: Node, ids: Node) -> Node:
    return sum(square(rows(table, ids)), -1)


def _recurrent(first: Node, xs: Node, w: Node) -> Node:
    def step(state: Node, x: Node) -> tuple[Node, Node]:
        state = tanh(plus(x, dot(state, w)))
        return state, state

    return scan(step, first, xs)[1]


def _gru(first: Node, xs: Node, w: Node, b: Node) -> Node:
    def step(state: Node, x: Node) -> tuple[Node, Node]:
        state = gru_ops(state, x, dot(state, w), b)
        return state, state

    return scan(step, first, xs)[0]


def _highways(x: Node, w: Node, b: Node) -> Node:
    t = affine(x, w, b)
    return highway(tanh(t), x, sigmoid(t))


COMPOSITIONS = (
    Subject("product, square, sum", _product_square_sum, Case((3,), (3, 3)), (1,), plain=True),
    Subject("squares of a product", _squares_of_product, Case((1, 8), (8, 8)), (1,)),
    Subject("attention", _attention, Case((1, 5, 8), (1, 5, 8), (1, 5, 8))),
    Subject("softmax chain", _softmax_chain, Case((2, 7))),
    Subject(
        "feed forward",
        _feed_forward,
        Case((1, 8), (8, 16), (1, 16), (16, 8), (1, 8), (1, 8), (1, 8)),
        (1, 2, 3, 4, 5, 6),
    ),
    Subject("gated units", _gated, Case((1, 8), (8, 8), (8, 8), (1, 8)), (1, 2, 3)),
    Subject("norm of a norm", _norms_of_a_norm, Case((2, 9), (1, 9)), (1,)),
    Subject(
        "cross entropy",
        _classified,
        Case((1, 8), (8, 11), (1, 11), (1,), domain=("real", "real", "real", "index:11")),
        (1, 2),
    ),
    Subject(
        "cross entropy, 32000 classes",
        _smoothed,
        Case((1, 32000), (1,), domain=("real", "index:32000")),
    ),
    Subject("distillation", _distilled, Case((1, 11), (1, 11))),
    Subject("embeddings", _embedded, Case((50, 8), (3,), domain=("real", "index:50")), (0,)),
    Subject("recurrence", _recurrent, Case((1, 4), (5, 1, 4), (4, 4)), (2,)),
    Subject("GRU", _gru, Case((1, 3), (4, 1, 9), (3, 9), (1, 9)), (2, 3)),
    Subject("highway", _highways, Case((1, 6), (6, 6), (1, 6)), (1, 2)),
)
"""What ``check_compiled`` examines besides operators."""
