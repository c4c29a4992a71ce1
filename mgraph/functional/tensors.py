"""The tensor operators that take functors, and the matrix product.

Marian's operators write into a tensor; these return a new array. The tensor that Marian's would add to is
passed as ``target`` or ``out``: an array, or a shape, which stands for a tensor without values yet.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..errors import ArgumentError, ShapeError
from ..rules import unbroadcast
from ..shape import Shape, as_shape
from .functors import Functor, as_array


def element(functor: Functor, *tensors: Any) -> Array:
    """The functor of the tensors, element by element, in the shape that they broadcast to.

    ``Element(_1 = sin(_2), val_, x)`` is ``element(sin(_1), x)``: nothing is assigned, so ``_1`` is the first
    input, not the output. ``ArgumentError`` if the functor takes a different number of tensors,
    ``ShapeError`` if they do not broadcast. Source: Marian, ``Element``.
    """
    return _values("element", functor, tensors)


def add(functor: Functor, target: Any, *tensors: Any, scale: Any = 1.0) -> Array:
    """``target + scale * functor(tensors)``, summed along the axes on which the target is stretched.

    That is how a gradient returns to a child that was broadcast: ``Add(_1 * cos(_2), child(0)->grad(), adj_,
    x)`` is ``add(_1 * cos(_2), x.shape, adj, x)``, the shape standing for zeros. The result has the target's
    shape. Errors are as for ``element``. Source: Marian, ``Add``.
    """
    shape, start = _target("add", target)
    total = _scaled(unbroadcast(_values("add", functor, tensors, shape), shape), scale)
    return total if start is None else start + total


def aggregate(
    functor: Functor, initial: float, agg_functor: Functor, target: Any, *tensors: Any, scale: Any = 1.0
) -> Array:
    """``add`` with a reduction other than the sum.

    ``agg_functor`` is an associative functor of two arrays: ``_1 + _2``, ``_1 * _2``, ``max(_1, _2)``,
    ``logaddexp(_1, _2)``; ``initial`` is its neutral element: 0, 1, ``-inf``. All elements along the axes on
    which the target is stretched are combined, then scaled by ``scale`` and combined with the target; a shape
    as target stands for an array filled with ``initial``. Errors are as for ``element``. Source: Marian,
    ``Aggregate``.
    """
    if not isinstance(agg_functor, Functor) or agg_functor.arity != 2:
        raise ArgumentError(f"aggregate: expected a functor of two such as max(_1, _2), got {agg_functor!r}")
    shape, start = _target("aggregate", target)
    values = _values("aggregate", functor, tensors, shape)
    aligned = (1,) * (values.ndim - len(shape)) + shape
    stretched = [i for i, n in enumerate(aligned) if n != values.shape[i]]
    if stretched:
        values = _together(agg_functor, initial, values, stretched)
    return agg_functor(initial if start is None else start, _scaled(values.reshape(shape), scale))


def prod(
    a: Any,
    b: Any,
    trans_a: bool = False,
    trans_b: bool = False,
    beta: Any = 0.0,
    scalar: Any = 1.0,
    out: Any = None,
) -> Array:
    """``beta * out + scalar * op(a) op(b)``, a product of matrices; ``op`` transposes if asked to.

    All axes of ``a`` and of ``b`` except the last are merged into one, the rows. The result has the shape of
    ``out``; without ``out`` it has the leading axes of ``a`` and the columns of ``op(b)``, or with
    ``trans_a`` two axes. ``ShapeError`` if the sizes do not fit, ``ArgumentError`` for a ``beta`` without an
    ``out``. Source: Marian, ``Prod``.
    """
    a, b = as_array("prod", a), as_array("prod", b)
    if not a.ndim or not b.ndim:
        raise ShapeError(f"prod: expected matrices, got {a.shape} and {b.shape}")
    left, right = (x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) for x in (a, b))
    left, right = left.T if trans_a else left, right.T if trans_b else right
    if left.shape[1] != right.shape[0]:
        raise ShapeError(
            f"prod: a product needs equal inner sizes, got {left.shape[1]} and {right.shape[0]} in "
            f"{a.shape}{'^T' * trans_a} times {b.shape}{'^T' * trans_b}"
        )
    y = _scaled(left @ right, scalar)
    if out is None:
        if not (isinstance(beta, int | float) and beta == 0):
            raise ArgumentError(f"prod: beta={beta!r} scales out, but no out was given")
        return y if trans_a else y.reshape(*a.shape[:-1], y.shape[1])
    shape, start = _target("prod", out)
    if math.prod(shape) != y.size:
        raise ShapeError(f"prod: a product of {y.shape} does not fit an out of {shape}")
    y = y.reshape(shape)
    return y if start is None else _scaled(start, beta) + y


def _target(op: str, target: Any) -> tuple[Shape, Array | None]:
    """Shape of the target, and its elements unless only a shape was given."""
    if isinstance(target, tuple):
        return as_shape(target), None
    start = as_array(op, target)
    return start.shape, start


def _values(op: str, functor: Functor, tensors: tuple[Any, ...], *shapes: Shape) -> Array:
    """The functor of the tensors, in the shape that they and ``shapes`` broadcast to."""
    if not isinstance(functor, Functor):
        raise ArgumentError(f"{op}: expected a functor such as _1 * cos(_2), got {functor!r}")
    if len(tensors) != functor.arity:
        raise ArgumentError(
            f"{op}: the functor {functor!r} takes {functor.arity} tensors, got {len(tensors)}"
        )
    arrays = [as_array(op, t) for t in tensors]
    shapes = (*shapes, *(a.shape for a in arrays))
    try:
        full = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"{op}: the functor {functor!r} needs shapes that broadcast, got {', '.join(map(str, shapes))}"
        ) from None
    return jnp.broadcast_to(functor(*arrays), full)


def _scaled(x: Array, scale: Any) -> Array:
    return x if isinstance(scale, int | float) and scale == 1 else x * scale


def _together(agg_functor: Functor, initial: float, values: Array, axes: list[int]) -> Array:
    """``initial`` combined with all elements along ``axes``, which are combined pairwise in a tree."""
    parts = jnp.moveaxis(values, axes, range(len(axes)))
    rest = parts.shape[len(axes) :]
    parts = parts.reshape(math.prod(parts.shape[: len(axes)]), *rest)
    while len(parts) > 1:
        half = len(parts) // 2
        pairs = parts[: 2 * half].reshape(half, 2, *rest)
        parts = jnp.concatenate([agg_functor(pairs[:, 0], pairs[:, 1]), parts[2 * half :]])
    return agg_functor(initial, parts[0]) if len(parts) else jnp.full(rest, initial, values.dtype)
