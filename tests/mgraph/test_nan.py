"""NaN stays visible: where it makes a gradient undefined, the gradient is NaN, not a plausible number."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, inits
from mgraph.cases import Case
from mgraph.gradcheck.survey import own_operators
from mgraph.ops.order import OrderNodeOp

OPERATORS = [
    cls
    for cls in own_operators()
    if cls.differentiable and cls.has_rule and not cls.composite and not issubclass(cls, OrderNodeOp)
]
"""Operators whose gradient is given by a rule. Sorting gives NaN a place, and the gradient goes there."""

PIECEWISE = """
ReLUNodeOp PReLUNodeOp ClipNodeOp MaximumNodeOp MinimumNodeOp MaxNodeOp MinNodeOp SparsemaxNodeOp
DropoutReluInplaceNodeOp PoolingOp PoolingWithMaskingOp AbsNodeOp
""".split()
"""Operators that compare numbers."""


def graph_of(cls: Any, case: Case, arrays: list[np.ndarray]) -> tuple[ExpressionGraph, Any, list[Any]]:
    graph, children = ExpressionGraph(), []
    for i, array in enumerate(arrays):
        init = inits.from_tensor(array)
        if array.dtype == np.float64:
            children.append(graph.param(f"x{i}", array.shape, init, "float64"))
        else:
            children.append(graph.constant(array.shape, init, array.dtype))
    return graph, (case.through or cls)(*children, **dict(case.fields)), children


def dependent_gradients(cls: Any, case: Case) -> list[tuple[str, Any]]:
    """Some elements whose gradient depends on their own value (found by moving the value), each with its
    gradient if the value is NaN."""
    arrays = case.values(3)
    graph, top, children = graph_of(cls, case, arrays)
    function = graph.function(top, [c for c in children if c.trainable])

    def loss(given: list[Any]) -> tuple[Any, Any]:
        value = jnp.concatenate([jnp.ravel(out) for out in jax.tree.leaves(function.pure({}, given))])
        weights = jnp.arange(1.0, value.size + 1)
        return jnp.sum(jnp.sin(weights) * value), value

    found = []
    with jax.enable_x64(True):
        run = jax.jit(jax.grad(loss, has_aux=True))
        moving = [array for array in arrays if array.dtype == np.float64]
        for k, array in enumerate(moving):
            for place in sorted({array.size // 3, array.size - 1}):

                def at(number: float, k: int = k, place: int = place) -> tuple[float, Any]:
                    changed = [a.copy() for a in moving]
                    changed[k].reshape(-1)[place] = number
                    gradients, value = run(changed)
                    return float(gradients[k].reshape(-1)[place]), value

                slopes = [at(number)[0] for number in (-9.1, -0.31, 0.29, 0.71, 9.3)]
                slope, value = at(np.nan)
                if np.ptp(np.nan_to_num(slopes, nan=1e9)) > 1e-9 and np.isnan(value).any():
                    found.append((f"{case}: child {k}, element {place}", slope))
    return found


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.__name__)
@pytest.mark.sampled(every=4)
def test_a_gradient_that_depends_on_a_number_is_nan_where_that_is(cls: Any) -> None:
    found = [pair for case in cls.cases for pair in dependent_gradients(cls, case)]
    for element, slope in found:
        assert np.isnan(slope), f"{element}: {slope}"
    assert found or cls.__name__ not in PIECEWISE


def test_nan_reaches_every_element_of_a_row_that_max_and_sparsemax_look_at(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2, 3), inits.from_vector([1, np.nan, 3, 4, 5, 6]))
    for top in (mgraph.max(x, 1), mgraph.min(x, 1), mgraph.sparsemax(x) * mgraph.exp(x)):
        function = graph.function(mgraph.sum(mgraph.flatten(top)), [x])
        slopes = np.asarray(jax.grad(lambda v, f=function: f.pure({}, [v])[0])(x.val()))
        assert np.isnan(slopes[0]).all() and np.isfinite(slopes[1]).all()
