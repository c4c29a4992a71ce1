"""``--check-nan``: stop training at a cost or gradient that is not finite, and say where it arose."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from mgraph import inits, remove_as_root
from mgraph.errors import NonFiniteError
from mgraph.names import first_of
from nmt.models import Model
from nmt.training.learning.batch_arrays import Arrays, part_of_group
from nmt.training.learning.objective import Differentiated, Objective
from nmt.training.schedule.divergence import DivergenceError
from nmt.training.update import Tensors

MOST_NAMED = 5
"""How many parameters an error names."""


@dataclass(frozen=True)
class FiniteCheck:
    """Checks the cost and the gradient of each batch.

    gradients: whether to check gradients, too; not if updates with a gradient that is not finite are skipped.
    Source: Marian, ``--check-nan``, which logs the first node and continues.
    """

    objective: Objective
    gradients: bool

    def check(self, found: Differentiated, params: Tensors, arrays: Arrays, groups: int, number: int) -> None:
        """``DivergenceError`` unless everything is finite.

        found: the result of update ``number`` (from 1) with ``params``, up to the batch ``arrays``; it may
        have an axis of groups. groups: how many groups of devices computed it.
        """
        names = sorted(found.gradients) if self.gradients else []
        flags = jax.device_get([jnp.isfinite(found.gradients[name]).all() for name in names])
        bad = [name for name, finite in zip(names, flags, strict=True) if not finite]
        cost = float(jnp.sum(found.cost))
        if jnp.isfinite(cost) and not bad:
            return
        gradients = f", the gradient is not finite at {first_of(bad, MOST_NAMED)}" if bad else ""
        origin = self._origin(params, arrays, groups)
        raise DivergenceError(f"--check-nan: update {number}: the cost is {cost:g}{gradients}{origin}")

    def _origin(self, params: Tensors, arrays: Arrays, groups: int) -> str:
        """The first operation of the loss whose value or gradient is not finite; empty if all are finite now,
        which is possible because dropout is drawn again."""
        own, kind = self.objective.model, self.objective.precision
        typed = {name: jnp.asarray(value, kind.dtype) for name, value in params.items()}
        model = Model(own.options, typed, own.dropouts, marian_exact=own.marian_exact)
        graph = model.new_graph(inference=False)
        graph.set_throw_nan()
        objective = replace(self.objective, model=model)
        for group in range(groups):
            graph.clear()
            inputs = {
                name: graph.constant(own.shape, inits.from_tensor(own), str(own.dtype))
                for name, own in part_of_group(arrays, group, groups).items()
            }
            try:
                loss = objective.recorded(inputs)
                remove_as_root(loss.labels)
                graph.backprop()
            except NonFiniteError as error:
                return f"; {error}"
        return ""
