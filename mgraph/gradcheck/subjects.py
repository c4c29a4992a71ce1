"""What is compiled to examine the compiler: operators, and compositions as in models, mapped over many
examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..cases import Case
from ..graph import ExpressionGraph
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
from ..tracing.trace import trace
from .example import record_case


@dataclass(frozen=True)
class Subject:
    """A function of one example, mapped over many: an operator or a composition on a case.

    ``shared`` are the children that all examples have in common: weights. ``plain`` marks a function of JAX
    arrays rather than of nodes.
    """

    name: str
    target: Callable[..., Any]
    case: Case
    shared: tuple[int, ...] = ()
    plain: bool = False

    @property
    def is_composition(self) -> bool:
        """Whether it is made of several operators."""
        return not isinstance(self.target, type)

    @cached_property
    def _parts(self) -> list[int | None]:
        """For each child, how many elements an example has; ``None`` if the child is shared."""
        return [None if i in self.shared else math.prod(s) for i, s in enumerate(self.case.shapes)]

    def most_rows(self, most_bytes: int) -> int:
        """The most examples for which no array, in float64, is larger than ``most_bytes``."""
        outputs = jax.tree.leaves(jax.eval_shape(self.function("float64"), *self.case.values()))
        largest = max([part or 1 for part in self._parts] + [math.prod(o.shape) for o in outputs])
        return max(1, most_bytes // (8 * max(1, largest)))

    def arrays(self, rows: int, seed: int = 0) -> list[np.ndarray]:
        """Values of the children of ``rows`` examples, in float64, all representable in float32."""
        found = self.case.values(seed, rows)
        return [_representable(array[0] if i in self.shared else array) for i, array in enumerate(found)]

    def first(self, arrays: Sequence[np.ndarray], rows: int) -> list[np.ndarray]:
        """The arrays of the first ``rows`` examples."""
        return [a if i in self.shared else a[:rows] for i, a in enumerate(arrays)]

    def function(self, element_type: str, rule_set: str = "rules") -> Callable[..., Any]:
        """The function of one example, called with its children's values, in an element type, differentiated
        by a rule set."""
        if self.plain:
            return self.target
        graph = ExpressionGraph(seed=1)
        node, children = record_case(graph, self.target, self.case, self.case.values(), element_type)
        tape = node.tape()
        excerpt = tape.below([node.id])
        inputs = [tape.nodes[i] for i in excerpt.inputs]
        known = {child.id: i for i, child in enumerate(children)}
        sources = [known.get(n.id) for n in inputs]
        own = [None if n.id in known else np.asarray(n.leaf_value()) for n in inputs]
        structure, output, key = excerpt.structure, excerpt.row_of[node.id], jax.random.key(1)

        def computed(*values: Any) -> Any:
            leaves = [own[i] if k is None else values[k] for i, k in enumerate(sources)]
            return trace(structure, leaves, rule_set=rule_set, key=key)[output]

        return computed

    def mapped(self, element_type: str) -> Callable[..., Any]:
        """The function of all examples, called with their children's values."""
        axes = tuple(None if i in self.shared else 0 for i in range(len(self.case.shapes)))
        return jax.vmap(self.function(element_type), axes)


def _representable(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32).astype(np.float64) if array.dtype == np.float64 else array


def _product_square_sum(x: jax.Array, m: jax.Array) -> jax.Array:
    """The program of issue 39103 of jax-ml/jax, in plain JAX."""
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
        "cross entropy, 32000 classes", _smoothed, Case((1, 32000), (1,), domain=("real", "index:32000"))
    ),
    Subject("distillation", _distilled, Case((1, 11), (1, 11))),
    Subject("embeddings", _embedded, Case((50, 8), (3,), domain=("real", "index:50")), (0,)),
    Subject("recurrence", _recurrent, Case((1, 4), (5, 1, 4), (4, 4)), (2,)),
    Subject("GRU", _gru, Case((1, 3), (4, 1, 9), (3, 9), (1, 9)), (2, 3)),
    Subject("highway", _highways, Case((1, 6), (6, 6), (1, 6)), (1, 2)),
)
"""What ``check_compiled`` examines besides operators."""
