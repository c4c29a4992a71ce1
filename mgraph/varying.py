"""Values that differ from device to device, inside ``jax.shard_map``.

JAX knows along which axes of the mesh a value differs. A rule's gradients differ along all axes along which
one of its children does, and must be added up for a child that does not, which the gradient of ``alike``
does.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")
Axes = frozenset[Any]


def varying(value: Any) -> Axes:
    """The axes of a mesh along which a value differs; none outside of ``jax.shard_map``."""
    if not isinstance(value, jax.core.Tracer):
        return frozenset()
    axes: Axes = jax.typeof(value).manual_axis_type.varying
    return axes


def varied(value: Any, axes: Axes) -> Any:
    """``value`` as one that differs along these axes, too."""
    more = tuple(sorted(axes - varying(value)))
    return jax.lax.pcast(value, more, to="varying") if more else value


def alike(values: T) -> T:
    """A pytree of values, each as one that differs along all axes along which one of them does."""
    return varied_as(values, values)


def varied_as(values: T, others: Any) -> T:
    """A pytree of values, each as one that differs along the axes along which one of the others does, too:
    what a loop begins with that adds the others up."""
    axes = frozenset[Any]().union(*map(varying, jax.tree.leaves(others)))
    if not axes:
        return values
    result: T = jax.tree.map(lambda value: varied(value, axes), values)
    return result


def zeros_like(value: Any) -> Any:
    """Zeros that differ along the axes along which ``value`` does."""
    return varied(jnp.zeros_like(value), varying(value))
