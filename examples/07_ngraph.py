"""The example of nGraph's page on graph basics: ``f(a, b, c) = (a + b) * c`` on 32 x 32 matrices.

Parameters are typed and shaped, every node is checked when it is built, and a function is an object with
named inputs and its results in order.
"""

import jax
import jax.numpy as jnp
import numpy as np

from mgraph import ElementTypeError, ExpressionGraph, GraphError, ShapeError

shape = (32, 32)
graph = ExpressionGraph()
a, b, c = (graph.input(name, shape, "float32") for name in "abc")
total = a + b
product = total * c
assert product.shape == shape and product.value_type == "float32"

f = graph.function(product, [a, b, c])
print("inputs:", f.inputs)
values = [np.full(shape, number, np.float32) for number in (1, 2, 3)]
result = f(*values)
assert result.shape == shape and float(result[0, 0]) == 9.0
np.testing.assert_array_equal(f(c=values[2], a=values[0], b=values[1]), result)

# Several results come in order, each in its own array.
sums, products = graph.function([total, product], [a, b, c])(*values)
assert float(sums[0, 0]) == 3.0 and float(products[0, 0]) == 9.0


def refused(error, call, *args, **named):
    """The call fails before anything runs."""
    try:
        call(*args, **named)
    except error as problem:
        print(f"{error.__name__}: {str(problem).splitlines()[0]}")
    else:
        raise AssertionError("should have been refused")


# Shapes and types that do not fit are errors where the node is built.
refused(ShapeError, lambda: a + graph.input("wide", (32, 33)))
refused(ElementTypeError, lambda: a + graph.input("whole", shape, "int32"))
# So are arguments that are missing, unknown, given twice, or of another shape or type.
refused(GraphError, f, *values[:2])
refused(GraphError, f, *values, d=values[0])
refused(GraphError, f, *values, a=values[0])
refused(ShapeError, f, values[0][:16], *values[1:])
refused(ElementTypeError, f, values[0].astype(np.float64), *values[1:])
# An input appears once, and is a leaf.
refused(GraphError, graph.function, product, {"a": a, "again": a})
refused(GraphError, graph.function, product, [total, c])

# The gradient of the graph, by its own rules: with respect to a and b it is c, to c it is a + b.
gradients = jax.grad(lambda inputs: jnp.sum(f.pure({}, inputs)))(values)
for gradient, expected in zip(gradients, (3.0, 3.0, 3.0), strict=True):
    np.testing.assert_array_equal(gradient, np.full(shape, expected, np.float32))
