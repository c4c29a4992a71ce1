"""Patterns and rewriting: a graph as you write it down, and as it should be computed.

``optimize`` applies rules until none fits: here it finds softmax cross-entropy, ``affine`` and transposed
products in naive code. Your own rules are a pattern and a function.
"""

import jax.numpy as jnp
import numpy as np

import mgraph
from mgraph import ExpressionGraph, NaryNodeOp, inits
from mgraph.ops.index import GatherNodeOp
from mgraph.ops.softmax import SoftmaxNodeOp
from mgraph.rewriting import DEFAULT, rule
from mgraph.rewriting.patterns import Label, Op

random = np.random.default_rng(1)


def naive_loss(graph):
    """A classifier written without a thought for numerics."""
    x = graph.constant((4, 3), inits.from_tensor(random.standard_normal((4, 3))))
    labels = graph.constant((4, 1), inits.from_vector([0, 4, 2, 2]), "uint32")
    w, b = graph.param("W", (5, 3)), graph.param("b", (1, 5), inits.zeros())
    scores = mgraph.dot(x, mgraph.transpose(w)) * 30.0 * 40.0 + b
    p = mgraph.exp(scores) / mgraph.sum(mgraph.exp(scores), -1)
    return -mgraph.mean(mgraph.log(mgraph.gather(p, -1, labels)))


# As written, it overflows: exp(1000) does not fit into a float32.
graph = ExpressionGraph()
loss = naive_loss(graph)
graph.backprop()
print("as written:", loss.scalar())
assert not np.isfinite(loss.scalar())

# Rewritten, it does not; the node stays the same.
random = np.random.default_rng(1)
graph = ExpressionGraph()
loss = naive_loss(graph)
report = graph.optimize()
print(report)
graph.backprop()
print("rewritten:", loss.scalar())
assert np.isfinite(loss.scalar()) and np.isfinite(graph.params()["W"].grad()).all()
assert report.operators_after < report.operators_before

# A pattern is an expression with holes; find() says where it fits.
random = np.random.default_rng(1)
graph = ExpressionGraph()
p = mgraph.softmax(graph.param("logits", (2, 3)))
mgraph.gather(p, -1, graph.constant((2, 1), inits.zeros(), "uint32"))
for match in Op(GatherNodeOp, Op(SoftmaxNodeOp, Label("x")), Label("labels")).find(graph):
    print(f"{match.root} picks from the softmax of {match.x.name!r}")


# Your own composite operator, and the rule that lowers it to core operators.
class PaddedCellNodeOp(NaryNodeOp):
    """``tanh(x W + h)`` where ``mask`` is 1, and ``h`` where it is 0."""

    type = "padded_cell"

    def forward_ops(self, x, h, w, mask):
        return mask * jnp.tanh(x @ w + h) + (1 - mask) * h

    def backward_ops(self, adj, val, x, h, w, mask):
        y = jnp.tanh(x @ w + h)
        d = adj * mask * (1 - y * y)
        return d @ w.T, d + adj * (1 - mask), x.T @ d, adj * (y - h)


@rule(Op(PaddedCellNodeOp, Label("x"), Label("h"), Label("w"), Label("mask")))
def lower_padded_cell(m):
    y = mgraph.tanh(mgraph.dot(m.x, m.w) + m.h)
    return m.mask * y + (1 - m.mask) * m.h


graph = ExpressionGraph()
x, h, w = graph.param("x", (4, 3)), graph.param("h", (1, 5)), graph.param("w", (3, 5))
mask = graph.constant((4, 1), inits.from_vector([1, 1, 0, 1]))
cell = PaddedCellNodeOp(x, h, w, mask)
as_one = graph.function(cell, [x])(x.val())
report = graph.optimize((lower_padded_cell, *DEFAULT))
print(report)
np.testing.assert_allclose(graph.function(cell, [x])(x.val()), as_one, rtol=1e-6)
# What the lowering made is rewritten in turn: dot and sum to affine, 1 - mask to a constant.
assert report.counts == {"constant_folding": 2, "lower_padded_cell": 1, "affine": 1}
