"""The operators in the body of a loop, each examined in every step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...ops.scan import ScanNodeOp
from ...specs import is_real
from ...structure import is_leaf
from ...tracing.trace import trace
from .comparison import Comparison, comparisons, gradients_in_place

Inner = dict[str, tuple[Comparison | None, ...]]
"""For each operator of a body, by its row (``"3"``, in a loop inside of the body ``"3.2"``), a comparison for
each child, with an axis for the steps."""


def body_comparisons(
    loop: ScanNodeOp, rule_set: str, trained: tuple[bool, ...], adj: Any, children: tuple[Any, ...]
) -> Inner:
    """How the rules of the body's operators compare with JAX at the values and adjoints of each step.

    The adjoints are those of JAX. ``trained`` has a flag for each child of the loop.
    """
    body, states = loop.body, len(loop.body.states)
    first, stacked = children[:states], children[states : states + loop.sequences]
    outer = children[states + loop.sequences :]
    flags = (*(is_real(v) for v in first), *trained[states:])
    rows, moving = body.structure.rows, body.structure.trainable(flags)
    leaves = [i for i, row in enumerate(rows) if is_leaf(row)]
    fixed = dict(zip(leaves[states + loop.sequences :], outer, strict=True))
    judged = [i for i, row in enumerate(rows) if moving[i] and not is_leaf(row)]

    def outputs(probes: dict[int, Any]) -> tuple[Any, Any]:
        def step(state: Any, given: Any) -> tuple[Any, Any]:
            slices, probe = given
            values = trace(
                body.structure, (*state, *slices, *outer), rule_set="jax", trained=flags, probes=probe
            )
            changing = {i: v for i, v in values.items() if i not in fixed}
            return tuple(values[i] for i in body.states), (tuple(values[i] for i in body.results), changing)

        given = (tuple(stacked), probes)
        last, (results, values) = jax.lax.scan(step, tuple(first), given, loop.length, loop.reverse)
        return (*last, *results), values

    shapes = jax.eval_shape(outputs, {})[1]
    probes = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), {i: shapes[i] for i in judged})
    reached, pull, values = jax.vjp(outputs, probes, has_aux=True)
    full = (
        np.zeros(v.shape, jax.dtypes.float0) if a is None else a for a, v in zip(adj, reached, strict=True)
    )
    adjoints = jax.tree.map(lambda a: a if is_real(a) else None, pull(tuple(full))[0])

    def compared(step: Any) -> Inner:
        local, adjoint = {**fixed, **step[0]}, step[1]
        found: Inner = {}
        for i in judged:
            operator, inputs = rows[i][0], tuple(local[k] for k in rows[i][1:])
            inner = tuple(moving[k] for k in rows[i][1:])
            gradients = gradients_in_place(operator, inner)
            given = adjoint[i], local[i], inputs
            found[str(i)] = comparisons(operator, rule_set, inner, gradients, *given)[2]
            if isinstance(operator, ScanNodeOp):
                below = body_comparisons(operator, rule_set, inner, adjoint[i], inputs)
                found |= {f"{i}.{key}": each for key, each in below.items()}
        return found

    result: Inner = jax.lax.map(compared, (values, adjoints))
    return result
