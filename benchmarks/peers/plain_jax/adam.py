"""Adam with Marian's defaults and clipping by the norm, and a compiled step around a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Arrays = dict[str, jax.Array]
Batch = tuple[Any, Any, Any, Any]
"""Source ids, source mask, target ids, target mask: ``(batch, time)`` each."""

BETA1, BETA2, EPS, CLIP_NORM = 0.9, 0.999, 1e-8, 1.0


class State(NamedTuple):
    """What a step changes."""

    parameters: Arrays
    first: Arrays
    second: Arrays
    steps: Any


def start(parameters: Mapping[str, Any]) -> State:
    """The state before the first step."""
    own = {name: jnp.array(value, copy=True) for name, value in parameters.items()}
    first, second = ({name: jnp.zeros_like(value) for name, value in own.items()} for _ in range(2))
    return State(own, first, second, jnp.int32(0))


def step_of(
    loss: Callable[[Arrays, Batch], jax.Array], learning_rate: float
) -> Callable[[State, Batch], tuple[State, jax.Array]]:
    """The compiled step: forward, backward, clipping, Adam; the state's buffers are overwritten."""

    @partial(jax.jit, donate_argnums=0)
    def step(state: State, batch: Batch) -> tuple[State, jax.Array]:
        cost, gradients = jax.value_and_grad(loss)(state.parameters, batch)
        return _moved(state, gradients, learning_rate), cost

    return step


def _moved(state: State, gradients: Arrays, learning_rate: float) -> State:
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients.values()))
    factor = jnp.minimum(1, CLIP_NORM / norm)
    steps = state.steps + 1
    rate = learning_rate / (1 - BETA1**steps)
    correction = 1 - BETA2**steps
    parameters, first, second = {}, {}, {}
    for name, gradient in gradients.items():
        g = gradient * factor
        m = BETA1 * state.first[name] + (1 - BETA1) * g
        v = BETA2 * state.second[name] + (1 - BETA2) * g * g
        parameters[name] = state.parameters[name] - rate * m / (jnp.sqrt(v / correction) + EPS)
        first[name], second[name] = m, v
    return State(parameters, first, second, steps)
