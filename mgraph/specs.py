"""``Spec``: the shape and element type of a value, one object per pair, so that ``is`` compares."""

from __future__ import annotations

import weakref
from typing import Any

import jax
import jax.numpy as jnp

from .shape import NodeShape, Shape
from .types import Type, as_type

_SPECS: weakref.WeakValueDictionary[tuple[Shape, Type], Spec] = weakref.WeakValueDictionary()


class Spec:
    """Shape and element type of one array. Made by ``spec_of``; equal specs are one object."""

    __slots__ = ("__weakref__", "shape", "struct", "type")

    def __init__(self, shape: Shape, type_: Type) -> None:
        self.shape = NodeShape(shape)
        self.type = type_
        self.struct = jax.ShapeDtypeStruct(tuple(shape), type_.dtype)

    def __reduce__(self) -> Any:
        # called by copy and pickle
        return spec_of, (tuple(self.shape), self.type)

    def __repr__(self) -> str:
        return f"{self.type.value}{list(self.shape)}"


Specs = Spec | tuple[Spec, ...]


def spec_of(shape: Shape, type_: Type) -> Spec:
    """The one ``Spec`` of this shape and type."""
    key = (shape, type_)
    spec = _SPECS.get(key)
    if spec is None:
        spec = _SPECS[key] = Spec(shape, type_)
    return spec


def spec_like(value: Any) -> Specs:
    """The ``Spec`` of anything with ``shape`` and ``dtype``; for a tuple of values, a tuple."""
    if isinstance(value, tuple | list):
        return tuple(spec_of(tuple(v.shape), as_type(v.dtype)) for v in value)
    return spec_of(tuple(value.shape), as_type(value.dtype))


def is_wide(spec: Specs) -> bool:
    """Whether JAX must have 64-bit types enabled to hold this value."""
    return any(s.type.is_wide for s in spec) if isinstance(spec, tuple) else spec.type.is_wide


def has_float(spec: Specs) -> bool:
    """Whether a gradient can flow into this value, or into a part of it."""
    return any(s.type.is_float for s in spec) if isinstance(spec, tuple) else spec.type.is_float


def is_real(array: Any) -> bool:
    """Whether an array or a spec has a floating-point type."""
    return jnp.issubdtype(array.dtype, jnp.floating)


def holds_keys(array: Any) -> bool:
    """Whether an array or a spec holds typed random keys, as from ``jax.random.key``."""
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def as_jax(value: Any) -> jax.Array:
    """``value`` as a JAX array that keeps its element type, 64-bit types included."""
    if isinstance(value, jax.Array):
        return value
    with jax.enable_x64(is_wide(spec_like(value))):
        return jax.numpy.asarray(value)
