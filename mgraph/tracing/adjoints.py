"""Values and adjoints while they are computed: clipped, or watched for NaN and infinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ..specs import is_real


@jax.custom_vjp
def clip_adjoint(bound: Any, value: Any) -> Any:
    """The value itself; its adjoint is clipped elementwise to ``+-bound``."""
    return value


def clipped(bound: Any, adj: Any) -> Any:
    """An adjoint clipped elementwise to ``+-bound``; integer parts stay as they are."""
    return jax.tree.map(lambda g: jnp.clip(g, -bound, bound) if is_real(g) else g, adj)


def _clip_forward(bound: Any, value: Any) -> tuple[Any, Any]:
    return value, bound


def _clip_reverse(bound: Any, adj: Any) -> tuple[None, Any]:
    return None, clipped(bound, adj)


clip_adjoint.defvjp(_clip_forward, _clip_reverse)


def are_finite(values: Mapping[int, Any]) -> jax.Array:
    """For each row, in order, whether its whole value is finite."""
    return jnp.stack([_is_finite(values[i]) for i in sorted(values)])


def _is_finite(value: Any) -> jax.Array:
    checks = [jnp.isfinite(v).all() for v in jax.tree.leaves(value) if jnp.issubdtype(v.dtype, jnp.inexact)]
    return jnp.stack([jnp.array(True), *checks]).all()


@jax.custom_vjp
def watched(value: Any, tap: jax.Array) -> Any:
    """The value itself; the gradient of ``tap`` is 0 if the value's whole gradient is finite, else 1."""
    return value


def _watch_forward(value: Any, tap: jax.Array) -> tuple[Any, None]:
    return value, None


def _watch_reverse(_: None, adj: Any) -> tuple[Any, jax.Array]:
    return adj, 1 - _is_finite(adj).astype(jnp.float32)


watched.defvjp(_watch_forward, _watch_reverse)
