"""The worked example of Marian's page on expression graphs, line by line.

z = x*y + sin(x) for x = 2, y = 3; its gradient; one step of gradient descent on abs(6 - z).
"""

import jax
import jax.numpy as jnp

import mgraph
from mgraph import ExpressionGraph, Sgd, inits

# Create and initialize a graph; record the expression.
graph = ExpressionGraph()
graph.set_device(0, "cpu")
graph.reserve_workspace_mb(8)
x = graph.param("x", (1, 1), inits.from_value(2))
y = graph.constant((1, 1), inits.from_value(3))
z = x * y + mgraph.sin(x)
mgraph.debug(x, "Parameter x")  # prints value and gradient in Marian's layout, on stderr

# The graph in the dot language, before it runs.
print(graph.graphviz())

# Forward and backward.
graph.forward()
print(f"z={z.scalar():.4f}")
graph.backward()
print(f"dz/dx={float(x.grad()[0, 0]):.5f}")
assert f"{z.scalar():.4f}" == "6.9093"
assert f"{float(x.grad()[0, 0]):.5f}" == "2.58385"

# The same gradient from JAX's own differentiation of the same graph, and of plain code.
function = graph.function(z, [x], derivatives="jax")
by_jax = jax.grad(lambda v: function.pure({}, [v])[0, 0])(jnp.full((1, 1), 2.0))
by_hand = jax.grad(lambda v: v * 3.0 + jnp.sin(v))(2.0)
assert f"{float(by_jax[0, 0]):.5f}" == f"{float(by_hand):.5f}" == "2.58385"

# A loss and an optimizer: the graph is recorded again, the parameter stays.
graph.clear()
y = graph.constant((1, 1), inits.from_value(3))
actual = graph.constant((1, 1), inits.from_value(6))
loss = mgraph.abs(actual - (x * y + mgraph.sin(x)))
graph.backprop()
Sgd(0.005).update(graph)
print(f"x={x.scalar():.5f}")
assert f"{x.scalar():.5f}" == "1.98708"
