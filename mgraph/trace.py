"""Tracing: a recorded structure as a JAX computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .rules import evaluate
from .tape import INPUT, Structure, is_leaf


def run_draws(seed: int, run: int, ordinals: Sequence[int] = ()) -> np.ndarray:
    """What ``run_key`` takes: the random draws of one run, of the random leaves ``ordinals``."""
    return np.array([seed >> 32, seed & 0xFFFFFFFF, run, *ordinals], np.uint32)


def run_key(draws: Any) -> jax.Array:
    """The random key of a run from ``draws = [seed, seed, run, ordinal, ordinal, ...]`` (uint32)."""
    return jax.random.fold_in(jax.random.wrap_key_data(draws[:2], impl="threefry2x32"), draws[2])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def clip_adjoint(bound: float, value: Any) -> Any:
    """The value itself; its adjoint is cut elementwise to ``+-bound``."""
    return value


def clipped(bound: float, adj: Any) -> Any:
    """An adjoint cut elementwise to ``+-bound``; parts of integers as they are."""
    return jax.tree.map(lambda g: jnp.clip(g, -bound, bound) if _is_real(g) else g, adj)


def _clip_forward(bound: float, value: Any) -> tuple[Any, None]:
    return value, None


def _clip_reverse(bound: float, _: None, adj: Any) -> tuple[Any]:
    return (clipped(bound, adj),)


def _is_real(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.floating)


clip_adjoint.defvjp(_clip_forward, _clip_reverse)


def trace(
    structure: Structure,
    leaves: Sequence[Any],
    *,
    rule_set: str = "rules",
    trained: tuple[bool, ...] | None = None,
    key: Any = None,
    ordinals: Any = None,
    probes: Mapping[int, Any] | None = None,
    clip_value: float = 0.0,
) -> list[Any]:
    """Values of all rows, in order.

    ``leaves`` are the values of the input rows; ``trained`` replaces their own trainability. Random rows
    draw from ``key`` folded with their entry of ``ordinals`` (their own count if that is ``None``).
    No gradient flows into an untrained input, nor into a node frozen by hand, under any rule set.
    A probe is a zero added to a row's value: the gradient by it is the gradient by that value.
    """
    values: list[Any] = []
    flags = structure.trainable(trained)
    frozen = {i for i, row in enumerate(structure.rows) if row[0] is INPUT and not flags[i]}
    frozen.update(i for i, trainable in structure.overrides if not trainable)
    inputs = iter(leaves)
    count = 0
    for i, row in enumerate(structure.rows):
        head = row[0]
        if head is INPUT:
            # Rules speak JAX's arithmetic: numpy's has other promotions and no ``at``.
            value = next(inputs)
            value = jnp.asarray(value) if isinstance(value, np.ndarray) else value
        elif is_leaf(row):
            ordinal = count if ordinals is None else ordinals[count]
            value = head.device_value(jax.random.fold_in(key, ordinal), row[1].shape, row[1].type)
            count += 1
        else:
            children = row[1:]
            value = evaluate(
                head, rule_set, tuple(flags[k] for k in children), tuple(values[k] for k in children)
            )
        if i in frozen:
            value = jax.lax.stop_gradient(value)
        if probes is not None and i in probes:
            value = jax.tree.map(lambda v, p: v + p if _is_real(v) else v, value, probes[i])
        if clip_value and flags[i] and not is_leaf(row):
            value = clip_adjoint(clip_value, value)
        values.append(value)
    return values
