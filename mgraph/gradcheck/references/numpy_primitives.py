"""JAX's primitives in NumPy, for the witness without a compiler: one function for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...specs import is_real

Array = np.ndarray
Primitive = Callable[..., Any]


class NoReferenceError(Exception):
    """A program has a primitive without a counterpart in the arithmetic that is asked for."""


# ---------------------------------------------------------------- element by element


def _each(function: Callable[[float], float]) -> Primitive:
    """A function of one number, applied to each element."""
    return np.vectorize(function, otypes=[np.float64])


def _divided(x: Array, y: Array) -> Array:
    if is_real(x):
        return np.true_divide(x, y)
    return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


ELEMENTWISE: dict[str, Primitive] = {
    "abs": np.abs, "add": np.add, "add_any": np.add, "and": np.bitwise_and, "atan2": np.arctan2,
    "ceil": np.ceil, "clamp": lambda low, x, high: np.clip(x, low, high), "copy": np.copy,
    "copy_p": np.copy, "cos": np.cos, "cosh": np.cosh, "div": _divided, "eq": np.equal,
    "erf": _each(math.erf), "erfc": _each(math.erfc), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "floor": np.floor, "ge": np.greater_equal, "gt": np.greater, "is_finite": np.isfinite,
    "le": np.less_equal, "log": np.log, "log1p": np.log1p, "logistic": _logistic, "lt": np.less,
    "max": np.maximum, "min": np.minimum, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative,
    "nextafter": np.nextafter, "not": np.invert, "one_minus_square": lambda x: 1 - x * x,
    "or": np.bitwise_or, "pow": np.power, "rem": np.fmod, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": np.sign, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square,
    "stop_gradient": np.asarray, "sub": np.subtract, "tan": np.tan, "tanh": np.tanh, "xor": np.bitwise_xor,
}  # fmt: skip

# ---------------------------------------------------------------- shapes, reductions, products


def _broadcast(out: Any, x: Array, *_: Any, broadcast_dimensions: Sequence[int], **__: Any) -> Array:
    shape = [1] * len(out.shape)
    for i, axis in enumerate(broadcast_dimensions):
        shape[axis] = x.shape[i]
    return np.broadcast_to(x.reshape(shape), out.shape)


def _iota(out: Any, *_: Any, dimension: int, **__: Any) -> Array:
    return _along(np.arange(out.shape[dimension]), dimension, len(out.shape)) + np.zeros(out.shape, out.dtype)


def _along(x: Array, axis: int, rank: int) -> Array:
    """A vector along one of ``rank`` axes."""
    return x.reshape([-1 if i == axis else 1 for i in range(rank)])


def _pad(_: Any, x: Array, value: Array, *, padding_config: Sequence[Any], **__: Any) -> Array:
    """``lax.pad``: holes between elements, then edges, which are cut where padding is negative."""
    holes = [hole for _, _, hole in padding_config]
    sizes = [max(0, (n - 1) * (hole + 1) + 1) for n, hole in zip(x.shape, holes, strict=True)]
    spread = np.full(sizes, value, x.dtype)
    spread[tuple(slice(None, None, hole + 1) for hole in holes)] = x
    edges = [(max(0, low), max(0, high)) for low, high, _ in padding_config]
    full = np.pad(spread, edges, constant_values=value)
    ends = zip(full.shape, padding_config, strict=True)
    return full[tuple(slice(max(0, -low), n - max(0, -high)) for n, (low, high, _) in ends)]


def _reshape(out: Any, x: Array, *_: Any, dimensions: Sequence[int] | None = None, **__: Any) -> Array:
    return (x if dimensions is None else x.transpose(dimensions)).reshape(out.shape)


def _split(_: Any, x: Array, *, sizes: Sequence[int], axis: int, **__: Any) -> list[Array]:
    return np.split(x, np.cumsum(sizes)[:-1].astype(int), axis)


def _slice(_: Any, x: Array, *, start_indices: Any, limit_indices: Any, strides: Any, **__: Any) -> Array:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _starts(x: Array, starts: Sequence[Any], sizes: Sequence[int]) -> tuple[slice, ...]:
    firsts = [min(max(0, int(s)), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def _dynamic_slice(_: Any, x: Array, *starts: Any, slice_sizes: Sequence[int], **__: Any) -> Array:
    return x[_starts(x, starts, slice_sizes)]


def _dynamic_update(_: Any, x: Array, update: Array, *starts: Any, **__: Any) -> Array:
    result = x.copy()
    result[_starts(x, starts, update.shape)] = update
    return result


def reduction(function: Callable[..., Any]) -> Primitive:
    """A reduction of some axes, from NumPy's."""
    return lambda _, x, *, axes, **__: function(x, axis=tuple(map(int, axes)))


def _extreme(function: Callable[..., Any]) -> Primitive:
    return lambda _, x, *, axes, **__: function(x, axis=int(axes[0]))


def cumulative(function: Callable[..., Any]) -> Primitive:
    """A running reduction along an axis, in either direction, from NumPy's."""

    def computed(_: Any, x: Array, *, axis: int, reverse: bool, **__: Any) -> Array:
        return np.flip(function(np.flip(x, axis), axis=axis), axis) if reverse else function(x, axis=axis)

    return computed


def _select(_: Any, which: Array, *cases: Array, **__: Any) -> Array:
    return np.choose(np.broadcast_to(which, cases[0].shape).astype(int), cases)


def _dot(out: Any, x: Array, y: Array, *, dimension_numbers: Any, **__: Any) -> Array:
    (along_x, along_y), (batch_x, batch_y) = dimension_numbers
    free_x = [i for i in range(x.ndim) if i not in (*along_x, *batch_x)]
    free_y = [i for i in range(y.ndim) if i not in (*along_y, *batch_y)]
    batch = [x.shape[i] for i in batch_x]
    terms = math.prod(x.shape[i] for i in along_x)
    left = x.transpose(*batch_x, *free_x, *along_x).reshape(*batch, -1, terms)
    right = y.transpose(*batch_y, *along_y, *free_y).reshape(*batch, terms, -1)
    return np.matmul(left.astype(out.dtype), right.astype(out.dtype)).reshape(out.shape)


def _round(_: Any, x: Array, *, rounding_method: Any, **__: Any) -> Array:
    if rounding_method == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return np.rint(x)
    # Half of what follows 0.5 downwards: with 0.5 itself, the sum would round 0.49999999999999994 up to 1.
    return np.trunc(x + np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0)), x))


def _convolution(
    _: Any,
    x: Array,
    kernel: Array,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    **__: Any,
) -> Array:
    if batch_group_count != 1 or len(window_strides) != 2:
        raise NoReferenceError("conv_general_dilated")
    groups = feature_group_count
    images, filters = x.transpose(dimension_numbers.lhs_spec), kernel.transpose(dimension_numbers.rhs_spec)
    edges = [(low, high, hole - 1) for (low, high), hole in zip(padding, lhs_dilation, strict=True)]
    images = _pad(None, images, np.zeros((), x.dtype), padding_config=[(0, 0, 0), (0, 0, 0), *edges])
    spread = [(0, 0, hole - 1) for hole in rhs_dilation]
    filters = _pad(None, filters, np.zeros((), x.dtype), padding_config=[(0, 0, 0), (0, 0, 0), *spread])
    filters = filters.reshape(groups, -1, *filters.shape[1:])
    down, across = window_strides
    height, width = (
        (n - k) // step + 1
        for n, k, step in zip(images.shape[2:], filters.shape[3:], window_strides, strict=True)
    )
    made = np.zeros((len(images), groups, filters.shape[1], height * width), x.dtype)
    for i, j in np.ndindex(*filters.shape[3:]):
        seen = images[:, :, i : i + down * (height - 1) + 1 : down, j : j + across * (width - 1) + 1 : across]
        made += np.matmul(filters[..., i, j], seen.reshape(len(images), groups, -1, height * width))
    made = made.reshape(len(images), -1, height, width)
    return made.transpose(np.argsort(dimension_numbers.out_spec))


def windowed(function: Callable[..., Any], initial: Any) -> Primitive:
    """A reduction of each window, from NumPy's reduction of axes; ``initial`` is the padding."""

    def computed(
        _: Any,
        x: Array,
        *,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        base_dilation: Sequence[int],
        window_dilation: Sequence[int],
        **__: Any,
    ) -> Array:
        edges = [(low, high, hole - 1) for (low, high), hole in zip(padding, base_dilation, strict=True)]
        full = _pad(None, x, np.asarray(initial, x.dtype), padding_config=edges)
        reach = [(n - 1) * hole + 1 for n, hole in zip(window_dimensions, window_dilation, strict=True)]
        windows = sliding_window_view(full, reach)
        steps = [slice(None, None, step) for step in (*window_strides, *window_dilation)]
        return function(windows[tuple(steps)], axis=tuple(range(x.ndim, 2 * x.ndim)))

    return computed


# ---------------------------------------------------------------- order, indices


def _sort(_: Any, *columns: Array, dimension: int, num_keys: int, **__: Any) -> list[Array]:
    if num_keys != 1:
        raise NoReferenceError("sort by several keys")
    order = np.argsort(columns[0], dimension, kind="stable")
    return [np.take_along_axis(c, order, dimension) for c in columns]


def _top_k(_: Any, x: Array, *, k: int, axis: int = -1, **__: Any) -> list[Array]:
    order = np.argsort(-x, axis, kind="stable").take(range(k), axis)
    return [np.take_along_axis(x, order, axis), order]


def _positions(
    shape: Sequence[int],
    indices: Array,
    window: Sequence[int],
    window_axes: Sequence[int],
    window_sizes: Sequence[int],
    indexed: Sequence[int],
    batching: tuple[Sequence[int], Sequence[int]],
    mode: Any,
) -> tuple[tuple[Array, ...], Array]:
    """Where the elements of a gather or of the updates of a scatter lie in an array of ``shape``, and which
    lie inside.

    ``window`` are the axes of the result that run within a window, ``window_axes`` the axes of the array that
    these run along.
    """
    rank = indices.ndim - 1 + len(window)
    outer = [i for i in range(rank) if i not in window]
    starts = [_on_axes(indices[..., k], outer, rank) for k in range(indices.shape[-1])]
    inside = np.ones((1,) * rank, bool)
    places: list[Any] = [np.zeros((1,) * rank, np.int64) for _ in shape]
    for start, axis in zip(starts, indexed, strict=True):
        most = shape[axis] - window_sizes[axis]
        inside = inside & (start >= 0) & (start <= most)
        places[axis] = np.clip(start, 0, most)
    for axis, along in zip(*batching, strict=True):
        places[axis] = _along(np.arange(shape[axis]), outer[along], rank)
    for axis, place in zip(window_axes, window, strict=True):
        places[axis] = places[axis] + _along(np.arange(window_sizes[axis]), place, rank)
    clips = "CLIP" in str(mode) or "PROMISE" in str(mode)
    return tuple(places), np.ones_like(inside) if clips else inside


def _on_axes(x: Array, axes: Sequence[int], rank: int) -> Array:
    shape = [1] * rank
    for n, axis in zip(x.shape, axes, strict=True):
        shape[axis] = n
    return x.astype(np.int64).reshape(shape)


def _rest(rank: int, *without: Sequence[int]) -> list[int]:
    left_out = {int(axis) for axes in without for axis in axes}
    return [i for i in range(rank) if i not in left_out]


def _gather(
    out: Any,
    x: Array,
    indices: Array,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    mode: Any,
    fill_value: Any,
    **__: Any,
) -> Array:
    d = dimension_numbers
    places, inside = _positions(
        x.shape,
        indices,
        d.offset_dims,
        _rest(x.ndim, d.collapsed_slice_dims, d.operand_batching_dims),
        slice_sizes,
        d.start_index_map,
        (d.operand_batching_dims, d.start_indices_batching_dims),
        mode,
    )
    found = np.broadcast_to(x[places], out.shape)
    if inside.all():
        return found
    default = math.nan if is_real(x) else 0
    return np.where(inside, found, default if fill_value is None else fill_value)


def _scattered(function: Any) -> Primitive:
    def computed(
        _: Any, x: Array, indices: Array, updates: Array, *, dimension_numbers: Any, mode: Any, **__: Any
    ) -> Array:
        d = dimension_numbers
        within = _rest(x.ndim, d.inserted_window_dims, d.operand_batching_dims)
        sizes = [1] * x.ndim
        for axis, place in zip(within, d.update_window_dims, strict=True):
            sizes[axis] = updates.shape[place]
        places, inside = _positions(
            x.shape,
            indices,
            d.update_window_dims,
            within,
            sizes,
            d.scatter_dims_to_operand_dims,
            (d.operand_batching_dims, d.scatter_indices_batching_dims),
            mode,
        )
        flat = np.ravel_multi_index(np.broadcast_arrays(*places), x.shape)
        flat, inside = (np.broadcast_to(a, updates.shape) for a in (flat, inside))
        result = x.flatten()
        if function is None:
            result[flat[inside]] = updates[inside]
        else:
            function.at(result, flat[inside], updates[inside])
        return result.reshape(x.shape)

    return computed


def _axes_of(function: Callable[..., Any], name: str) -> Primitive:
    return lambda out, x, **params: function(x, params[name])


OTHERS: dict[str, Primitive] = {
    "argmax": _extreme(np.argmax), "argmin": _extreme(np.argmin), "broadcast_in_dim": _broadcast,
    "concatenate": lambda out, *parts, dimension, **_: np.concatenate(parts, dimension),
    "conv_general_dilated": _convolution,
    "convert_element_type": lambda out, x, **_: x.astype(out.dtype),
    "cumlogsumexp": cumulative(np.logaddexp.accumulate), "cummax": cumulative(np.maximum.accumulate),
    "cummin": cumulative(np.minimum.accumulate), "cumprod": cumulative(np.cumprod),
    "cumsum": cumulative(np.cumsum), "dot_general": _dot, "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update, "expand_dims": lambda out, x, **_: x.reshape(out.shape),
    "gather": _gather, "integer_pow": lambda out, x, *, y, **_: x.astype(float) ** y, "iota": _iota,
    "optimization_barrier": lambda out, *args, **_: list(args), "pad": _pad,
    "platform_index": lambda out, **_: np.zeros((), int), "reduce_and": reduction(np.all),
    "reduce_max": reduction(np.max), "reduce_min": reduction(np.min), "reduce_or": reduction(np.any),
    "reduce_prod": reduction(np.prod), "reduce_sum": reduction(np.sum),
    "reduce_window_max": windowed(np.max, -math.inf), "reduce_window_sum": windowed(np.sum, 0.0),
    "reshape": _reshape, "round": _round, "rev": _axes_of(np.flip, "dimensions"),
    "scatter": _scattered(None), "scatter-add": _scattered(np.add),
    "scatter_add": _scattered(np.add), "select_n": _select, "slice": _slice, "sort": _sort, "split": _split,
    "squeeze": lambda out, x, **_: x.reshape(out.shape), "top_k": _top_k,
    "transpose": _axes_of(np.transpose, "permutation"),
}  # fmt: skip
"""Primitives by name: functions of the spec of the result, the operands and the parameters."""
