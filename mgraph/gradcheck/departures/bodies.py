"""The body of a loop: the values of its operators in every step, and their adjoints."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...ops.scan import ScanNodeOp
from ...specs import is_real
from ...structure import is_leaf
from ...tracing.trace import trace

Stacked = dict[int, Any]
"""Values by row of the body, with an axis for the steps."""


class BodyOf:
    """The rows of a loop's body. ``trained`` has a flag for each child of the loop."""

    def __init__(self, loop: ScanNodeOp, trained: tuple[bool, ...], children: tuple[Any, ...]) -> None:
        self._loop, self._body = loop, loop.body
        self.rows = loop.body.structure.rows
        states = len(loop.body.states)
        self._states, changing = states, states + loop.sequences
        self._trained = (*(is_real(v) for v in children[:states]), *trained[states:])
        self.flags = loop.body.structure.trainable(self._trained)
        leaves = [i for i, row in enumerate(self.rows) if is_leaf(row)]
        self.fixed = leaves[changing:]
        """The leaves that stand for nodes from outside, the loop's last children: the same in all steps."""
        self.judged = [i for i, row in enumerate(self.rows) if self.flags[i] and not is_leaf(row)]
        """The operators that gradients reach."""

    def run(self, adj: Any, children: tuple[Any, ...]) -> tuple[Stacked, Stacked]:
        """The values of all rows that may change from step to step, and the adjoints of the operators.

        ``adj`` is the adjoint of the loop. All derivatives are JAX's: a zero is added to each value in each
        step, and the gradient with respect to that zero is the adjoint.
        """
        shapes = jax.eval_shape(self._outputs, {}, children)[1]
        probes = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), {i: shapes[i] for i in self.judged})
        reached, pull, values = jax.vjp(lambda p: self._outputs(p, children), probes, has_aux=True)
        full = tuple(
            np.zeros(v.shape, jax.dtypes.float0) if a is None else a
            for a, v in zip(adj, reached, strict=True)
        )
        return values, jax.tree.map(lambda a: a if is_real(a) else None, pull(full)[0])

    def _outputs(self, probes: Stacked, children: tuple[Any, ...]) -> tuple[tuple[Any, ...], Stacked]:
        """What the loop returns, and the values of its rows."""
        loop, body, states = self._loop, self._body, self._states
        first, stacked = children[:states], children[states : states + loop.sequences]
        outer = children[states + loop.sequences :]

        def step(state: Any, given: Any) -> tuple[Any, Any]:
            slices, probe = given
            leaves = (*state, *slices, *outer)
            rows = trace(body.structure, leaves, rule_set="jax", trained=self._trained, probes=probe)
            changing = {i: v for i, v in rows.items() if i not in self.fixed}
            return tuple(rows[i] for i in body.states), (tuple(rows[i] for i in body.results), changing)

        given = (tuple(stacked), probes)
        last, (results, values) = jax.lax.scan(step, tuple(first), given, loop.length, loop.reverse)
        return (*last, *results), values


def step_of(stacked: Any, step: int) -> Any:
    """One step of stacked values."""
    return jax.tree.map(lambda v: np.asarray(v)[step], stacked)
