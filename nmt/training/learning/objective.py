"""What an update differentiates: the training loss of one batch, as a pure function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mgraph import ExpressionGraph, Node, Type, cast
from mgraph.draws import run_key
from nmt.models import Model, Source
from nmt.text.batches import Batch
from nmt.training.loss import LossOptions, Target, training_loss
from nmt.training.update import Tensors

Arrays = dict[str, Any]
"""A batch as the arguments of a program."""


class Differentiated(NamedTuple):
    """The loss of one or several batches and its gradient; float32."""

    gradients: Tensors
    cost: Any
    """Shape ()."""
    labels: Any
    """Shape ()."""


@dataclass(frozen=True)
class Objective:
    """The training loss of a model.

    precision: the type that the model is computed in; parameters and gradients are float32.
    rule_set: the rules that differentiate it. checkpointing: whether to compute inner values again in the
    backward pass. frozen: names of parameters that are not trained.
    """

    model: Model
    loss: LossOptions = field(default_factory=LossOptions)
    precision: Type = Type.float32
    rule_set: str = "rules"
    checkpointing: bool = False
    frozen: frozenset[str] = field(default=frozenset())

    @property
    def key(self) -> Hashable:
        """Equal for objectives that are the same function."""
        settings = (self.loss, self.precision, self.rule_set, self.checkpointing, self.frozen)
        return self.model.key, self.model.dropouts, *settings

    def differentiated(
        self, specs: dict[str, jax.ShapeDtypeStruct]
    ) -> Callable[[Tensors, Arrays, Any, Any], Differentiated]:
        """``f(params, batch, draws, scale)`` for batches of these shapes.

        ``draws`` are four uint32: the seed, the number of the update and of the batch in it, which together
        determine what is dropped. ``scale`` multiplies the cost that is differentiated, not the one that is
        returned.
        """
        function = self._recorded(specs)
        trained = [name for name in self.model.params if name not in self.frozen]

        def scaled_cost(some: Tensors, params: Tensors, batch: Arrays, key: Any, scale: Any) -> Any:
            every = {**params, **some}
            typed = {name: value.astype(self.precision.dtype) for name, value in every.items()}
            cost, labels = (value.reshape(()) for value in function.pure(typed, batch, key))
            return cost * scale, (cost, labels)

        def differentiated(params: Tensors, batch: Arrays, draws: Any, scale: Any) -> Differentiated:
            key = jax.random.fold_in(run_key(draws), draws[3])
            some = {name: params[name] for name in trained}
            gradients, (cost, labels) = jax.grad(scaled_cost, has_aux=True)(some, params, batch, key, scale)
            zeros = {name: jnp.zeros_like(params[name]) for name in self.frozen}
            return Differentiated({**gradients, **zeros}, cost, labels)

        return differentiated

    def _recorded(self, specs: dict[str, jax.ShapeDtypeStruct]) -> Any:
        graph = ExpressionGraph(derivatives=self.rule_set)
        graph.set_default_element_type(self.precision)
        graph.set_checkpointing(self.checkpointing)
        for name in self.frozen:
            graph.param(name, self.model.params[name].shape, fixed=True)
        inputs = {name: graph.input(name, spec.shape, str(spec.dtype)) for name, spec in specs.items()}
        sources = [
            Source(inputs[f"ids{i}"], cast(inputs[f"mask{i}"], self.precision))
            for i in range(self.model.sources)
        ]
        last = self.model.sources
        target = Target(
            inputs[f"ids{last}"], inputs[f"mask{last}"], inputs.get("weights"), inputs.get("alignment")
        )
        outputs: list[Node] = list(training_loss(graph, self.model, sources, target, self.loss))
        return graph.function(outputs, inputs)


def arrays(batch: Batch) -> Arrays:
    """A batch as the arguments of a program; the names are those of the graph's inputs."""
    found: Arrays = {}
    for i, (ids, mask) in enumerate(zip(batch.ids, batch.masks, strict=True)):
        found[f"ids{i}"], found[f"mask{i}"] = ids, mask
    if batch.weights is not None:
        found["weights"] = batch.weights
    if batch.alignment is not None:
        found["alignment"] = batch.alignment
    return found


def specs_of(batch: Arrays) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and element types of a batch."""
    return {name: jax.ShapeDtypeStruct(np.shape(array), array.dtype) for name, array in batch.items()}
