"""JAX functions with custom derivative rules, right and wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def with_vjp(backward: Callable[[Any, Any], Any], function: Any = jnp.sin) -> Any:
    """``function`` with a backward rule, which gets the input and the adjoint."""

    @jax.custom_vjp
    def ruled(x: Any) -> Any:
        return function(x)

    ruled.defvjp(lambda x: (function(x), x), lambda x, adjoint: (backward(x, adjoint),))
    return ruled


def with_jvp(forward: Callable[[Any, Any], Any], function: Any = jnp.sin) -> Any:
    """``function`` with a forward rule, which gets the input and its tangent."""

    @jax.custom_jvp
    def ruled(x: Any) -> Any:
        return function(x)

    ruled.defjvp(lambda primals, tangents: (function(*primals), forward(*primals, *tangents)))
    return ruled


right_vjp = with_vjp(lambda x, adjoint: adjoint * jnp.cos(x))
right_jvp = with_jvp(lambda x, tangent: tangent * jnp.cos(x))
wrong_vjp = with_vjp(lambda x, adjoint: 1.01 * adjoint * jnp.cos(x))
wrong_jvp = with_jvp(lambda x, tangent: tangent * jnp.sin(x))
