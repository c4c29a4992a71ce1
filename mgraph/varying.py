"""Values that differ from device to device, inside ``jax.shard_map``.

JAX tracks along which axes of the mesh a value varies. A rule's gradients vary along every axis along which
one of its children varies. For a child that does not vary along such an axis, they must be summed over the
axis, which the gradient of ``alike`` does.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")
Axes = frozenset[Any]


def varying(value: Any) -> Axes:
    """The axes of a mesh along which a value varies; none outside ``jax.shard_map``."""
    if not isinstance(value, jax.core.Tracer):
        return frozenset()
    axes: Axes = jax.typeof(value).manual_axis_type.varying
    return axes


def varied(value: Any, axes: Axes) -> Any:
    """``value``, marked as varying along these axes, too."""
    more = tuple(sorted(axes - varying(value)))
    return jax.lax.pcast(value, more, to="varying") if more else value


def alike(values: T) -> T:
    """A pytree of values, each marked as varying along all axes along which any of them varies."""
    return varied_as(values, values)


def varied_as(values: T, others: Any) -> T:
    """A pytree of values, each marked as varying also along the axes along which any of the others varies:
    the start of a loop that adds the others up."""
    axes = frozenset[Any]().union(*map(varying, jax.tree.leaves(others)))
    if not axes:
        return values
    result: T = jax.tree.map(lambda value: varied(value, axes), values)
    return result


def zeros_like(value: Any) -> Any:
    """Zeros that vary along the same axes as ``value``."""
    return varied(jnp.zeros_like(value), varying(value))
