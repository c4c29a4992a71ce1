"""16-bit numbers as float32 where they are added up, multiplied or exponentiated."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..node import Node
from ..types import Type
from .structure import cast


def accumulator(dtype: Any) -> Any:
    """The type in which numbers of ``dtype`` are accumulated: float32 for 16-bit numbers, else ``dtype``."""
    return np.promote_types(dtype, np.float32) if jnp.issubdtype(dtype, jnp.floating) else dtype


def in_float32(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for ``forward_ops`` and ``backward_ops``: 16-bit children and adjoints come in as float32,
    and the rule's results go out in the original type::

        @in_float32
        def forward_ops(self, x):
            return jnp.sqrt(jnp.mean(x * x, self.axis, keepdims=True))
    """

    @wraps(rule)
    def run(self: Any, *values: Any) -> Any:
        results = rule(self, *(v.astype(accumulator(v.dtype)) for v in values))
        return jax.tree.map(lambda result: result.astype(values[0].dtype), results)

    return run


def within(x: Array, to: Any) -> Array:
    """``x`` cast to the type ``to``, with overflow clipped to its largest number; infinities stay."""
    if x.dtype == to:
        return x
    most = float(jnp.finfo(to).max)
    return jnp.where(jnp.isinf(x), x, jnp.clip(x, -most, most)).astype(to)


def widened(*children: Node) -> tuple[Node, ...]:
    """The children of a composition, cast to float32 if all have the same 16-bit type."""
    kinds = {x.value_type for x in children}
    if len(kinds) == 1 and kinds <= {Type.float16, Type.bfloat16}:
        return tuple(cast(x, Type.float32) for x in children)
    return children
