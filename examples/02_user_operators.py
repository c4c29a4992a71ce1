"""Your own operators, in your own file: a class each, nothing to register.

``SinNodeOp`` is the example of Marian's page on operations, ``LogitNodeOp`` that of the older code notes.
"""

import jax
import jax.numpy as jnp

import mgraph
from mgraph import ExpressionGraph, Node, UnaryNodeOp, check_gradients, inits


class SinNodeOp(UnaryNodeOp):
    """``sin(x)``, elementwise; gradient ``adj * cos(x)``."""

    type = "sin"

    def forward_ops(self, x):
        return jnp.sin(x)

    def backward_ops(self, adj, val, x):
        return (adj * jnp.cos(x),)


class LogitNodeOp(UnaryNodeOp):
    """``1 / (1 + exp(-x))``, elementwise; gradient ``adj * val * (1 - val)``, from the value alone."""

    type = "logit"

    def forward_ops(self, x):
        return jax.nn.sigmoid(x)

    def backward_ops(self, adj, val, x):
        return (adj * val * (1 - val),)


class ScaleNodeOp(UnaryNodeOp):
    """``factor * x``. An annotated attribute is a field: nodes with different factors stay separate."""

    type = "scale"
    factor: float

    def forward_ops(self, x):
        return self.factor * x

    def backward_ops(self, adj, val, x):
        return (self.factor * adj,)


def scaled_wave(x: Node, factor: float) -> Node:
    """The expression operator that users call, and the place for checks and shortcuts."""
    wave = SinNodeOp(x)
    return wave if factor == 1 else ScaleNodeOp(wave, factor=factor)


graph = ExpressionGraph()
x = graph.param("x", (2, 3), inits.from_vector([0.1, 0.2, 0.3, -0.4, -0.5, -0.6]))
top = mgraph.sum(mgraph.flatten(LogitNodeOp(scaled_wave(x, 2.5)) * x))
graph.backprop()
print(x.grad())

# Every operator is checked the same way, yours and the built-in ones.
for operator in (SinNodeOp, LogitNodeOp):
    report = check_gradients(operator, (2, 3))
    print(report)
    assert report.ok
print(check_gradients(top))
assert check_gradients(top).ok


# The check finds a wrong rule.
class WrongLogitNodeOp(LogitNodeOp):
    """The rule without its second factor."""

    def backward_ops(self, adj, val, x):
        return (adj * val,)


report = check_gradients(WrongLogitNodeOp, (2, 3))
print(report)
assert not report.ok
