"""How nodes of JAX's primitives, which ``from_jax`` makes, are written in ONNX."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from ...types import Type
from ..primitive_node import PrimitiveNodeOp
from .writer import Name, Operation, Rule, Writer, one

_ONE_TO_ONE = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "ceil": "Ceil", "cosh": "Cosh", "div": "Div", "eq": "Equal", "erf": "Erf",
    "floor": "Floor", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less",
    "max": "Max", "min": "Min", "pow": "Pow", "sign": "Sign", "sinh": "Sinh",
}  # fmt: skip
_LOGIC = {"and": "And", "or": "Or", "not": "Not", "xor": "Xor"}


def primitive_rule(operator: Any) -> Rule | None:
    """The rule that writes a primitive's node; ``None`` if there is none."""
    return PRIMITIVES.get(operator.type) if isinstance(operator, PrimitiveNodeOp) else None


def _logic(name: str) -> Rule:
    def write(w: Writer, o: Operation, *xs: Name) -> Name:
        kind = _LOGIC[name] if o.out.type is Type.bool else f"Bitwise{_LOGIC[name]}"
        return w.op(kind, *xs)

    return write


def _param(o: Operation, name: str) -> Any:
    return dict(o.operator.params).get(name)


def _select(w: Writer, o: Operation, which: Name, *cases: Name) -> Name:
    if o.specs[0].type is not Type.bool or len(cases) != 2:
        raise o.refuse("only a choice between two is")
    return w.op("Where", which, cases[1], cases[0])


def _broadcast(w: Writer, o: Operation, x: Name) -> Name:
    shape, places = _param(o, "shape"), _param(o, "broadcast_dimensions")
    sizes = [1] * len(shape)
    for axis, at in enumerate(places):
        sizes[at] = o.specs[0].shape[axis]
    if tuple(sizes) != o.specs[0].shape:
        x = w.op("Reshape", x, w.dims(tuple(sizes)))
    return w.op("Expand", x, w.dims(tuple(shape)))


def _reduction(kind: str) -> Rule:
    return lambda w, o, x: w.op(kind, x, w.ints(*_param(o, "axes")), keepdims=0)


def _truth(kind: str) -> Rule:
    """Whether all, or any, of the booleans are true."""

    def write(w: Writer, o: Operation, x: Name) -> Name:
        if o.out.type is not Type.bool:
            raise o.refuse("only truth values are")
        numbers = w.op(kind, w.cast(x, Type.int32), w.ints(*_param(o, "axes")), keepdims=0)
        return w.cast(numbers, Type.bool)

    return write


def _best(kind: str) -> Rule:
    def write(w: Writer, o: Operation, x: Name) -> Name:
        (axis,) = _param(o, "axes")
        return w.cast(w.op(kind, x, axis=axis, keepdims=0), o.out.type)

    return write


def _round(w: Writer, o: Operation, x: Name) -> Name:
    if int(_param(o, "rounding_method")) != 1:
        raise o.refuse("only rounding half to even is")
    return w.op("Round", x)


def _pad(w: Writer, o: Operation, x: Name, value: Name) -> Name:
    config, sizes = _param(o, "padding_config"), list(o.specs[0].shape)
    for axis, (_, _, inner) in enumerate(config):
        if inner and sizes[axis] > 1:
            x = _spread(w, x, value, sizes, axis, inner)
            sizes[axis] += (sizes[axis] - 1) * inner
    lows, highs = [low for low, _, _ in config], [high for _, high, _ in config]
    if any(n > 0 for n in (*lows, *highs)):
        x = w.op("Pad", x, w.ints(*(max(n, 0) for n in (*lows, *highs))), value)
    for axis, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if low < 0 or high < 0:
            end = high if high < 0 else int(np.iinfo(np.int64).max)
            x = w.op("Slice", x, w.ints(max(-low, 0)), w.ints(end), w.ints(axis))
    return x


def _spread(w: Writer, x: Name, value: Name, sizes: list[int], axis: int, inner: int) -> Name:
    """``x`` with ``inner`` copies of ``value`` between adjacent elements along an axis."""
    rank, after = len(sizes), axis + 1
    apart = w.op("Unsqueeze", x, w.ints(after))
    pads = [0] * (2 * rank + 2)
    pads[rank + 1 + after] = inner
    apart = w.op("Pad", apart, w.ints(*pads), value)
    joined = (*sizes[:axis], sizes[axis] * (inner + 1), *sizes[after:])
    apart = w.op("Reshape", apart, w.dims(joined))
    return w.op("Slice", apart, w.ints(0), w.ints(-inner), w.ints(axis))


def _reversed(w: Writer, o: Operation, x: Name) -> Name:
    lowest = int(np.iinfo(np.int64).min)
    for axis in _param(o, "dimensions"):
        x = w.op("Slice", x, w.ints(-1), w.ints(lowest), w.ints(axis), w.ints(-1))
    return x


def _gather(w: Writer, o: Operation, x: Name, indices: Name) -> Name:
    """Gathering along one axis: whole slices (embeddings, ``take``), or one element of each row."""
    numbers, sizes, shape = _param(o, "dimension_numbers"), _param(o, "slice_sizes"), o.specs[0].shape
    if len(numbers.start_index_map) != 1 or numbers.start_index_map != numbers.collapsed_slice_dims:
        raise o.refuse("only gathering along one axis is")
    (axis,), batch = numbers.start_index_map, len(o.specs[1].shape) - 1
    flat = w.op("Squeeze", w.cast(indices, Type.int64), w.ints(-1))
    if _param(o, "mode") == jax.lax.GatherScatterMode.CLIP:
        last = w.op("Sub", w.count(shape[axis]), w.constant(1, np.int64))
        flat = w.op("Max", w.op("Min", flat, last), w.constant(0, np.int64))
    others = tuple(i for i in range(len(shape)) if i != axis)
    if numbers.operand_batching_dims == numbers.start_indices_batching_dims == others != ():
        return w.op("GatherElements", x, flat, axis=axis)
    rest = tuple(i for i in range(len(o.out.shape)) if not axis <= i < axis + batch)
    whole = all(n == m or i == axis for i, (n, m) in enumerate(zip(sizes, shape, strict=True)))
    if not whole or rest != numbers.offset_dims or numbers.operand_batching_dims:
        raise o.refuse("only gathering of whole slices or of single elements is")
    return w.op("Gather", x, flat, axis=axis)


def _dynamic_slice(w: Writer, o: Operation, x: Name, *starts: Name) -> Name:
    """A slice from ``starts``, moved into the array as JAX does."""
    if not starts:
        return x
    sizes = w.dims(_param(o, "slice_sizes"))
    last = w.op("Sub", w.dims(o.specs[0].shape), sizes)
    vectors = [w.op("Reshape", w.cast(start, Type.int64), w.ints(1)) for start in starts]
    wished = w.op("Concat", *vectors, axis=0)
    first = w.op("Max", w.op("Min", wished, last), w.ints(0))
    return w.op("Slice", x, first, w.op("Add", first, sizes))


def _sort(w: Writer, o: Operation, *xs: Name) -> tuple[Name, ...]:
    if len(xs) > 1 and _param(o, "num_keys") != 1:
        raise o.refuse("only the order of one array is")
    axis = _param(o, "dimension")
    size = w.size(o.specs[0].shape[axis])
    ordered, places = w.parts("TopK", 2, xs[0], size, axis=axis, largest=0, sorted=1)
    return (ordered, *(w.op("GatherElements", x, places, axis=axis) for x in xs[1:]))


def _top_k(w: Writer, o: Operation, x: Name) -> tuple[Name, ...]:
    axis = _param(o, "axis")
    values, places = w.parts("TopK", 2, x, w.size(_param(o, "k")), axis=-1 if axis is None else axis)
    return values, w.cast(places, o.out[1].type)


def _log1p(w: Writer, o: Operation, x: Name) -> Name:
    """``log(1 + x)``; up to 1 it is ``log(u) x / (u - 1)`` with ``u = 1 + x`` (Kahan), in which the rounding
    of ``u`` cancels."""
    one = w.number(1, o.out)
    u = w.op("Add", x, one)
    log, change = w.op("Log", u), w.op("Sub", u, one)
    small = _unless_zero(w, o, change, w.op("Div", w.op("Mul", log, x), change), x)
    return w.op("Where", w.op("Greater", x, one), log, small)


def _expm1(w: Writer, o: Operation, x: Name) -> Name:
    """``exp(x) - 1``; from -1 to 1 it is ``(u - 1) x / log(u)`` with ``u = exp(x)`` (Kahan), in which the
    rounding of ``u`` cancels."""
    one = w.number(1, o.out)
    u = w.op("Exp", x)
    change = w.op("Sub", u, one)
    small = _unless_zero(w, o, change, w.op("Div", w.op("Mul", change, x), w.op("Log", u)), x)
    return w.op("Where", w.op("Greater", w.op("Abs", x), one), change, small)


def _unless_zero(w: Writer, o: Operation, change: Name, formula: Name, x: Name) -> Name:
    """The formula, or ``x`` where 1 has swallowed it."""
    return w.op("Where", w.op("Equal", change, w.number(0, o.out)), x, formula)


PRIMITIVES: dict[str, Rule] = {
    **{name: one(kind) for name, kind in _ONE_TO_ONE.items()},
    **{name: _logic(name) for name in _LOGIC},
    "argmax": _best("ArgMax"),
    "argmin": _best("ArgMin"),
    "broadcast_in_dim": _broadcast,
    "cbrt": lambda w, o, x: w.op("Mul", w.op("Sign", x), w.op("Pow", w.op("Abs", x), w.number(1 / 3, o.out))),
    "clamp": lambda w, o, low, x, high: w.op("Min", w.op("Max", x, low), high),
    "dynamic_slice": _dynamic_slice,
    "erfc": lambda w, o, x: w.op("Sub", w.number(1, o.out), w.op("Erf", x)),
    "exp2": lambda w, o, x: w.op("Pow", w.number(2, o.out), x),
    "expm1": _expm1,
    "gather": _gather,
    "integer_pow": lambda w, o, x: w.op("Pow", x, w.number(_param(o, "y"), o.out)),
    "is_finite": lambda w, o, x: w.op("Not", w.op("Or", w.op("IsInf", x), w.op("IsNaN", x))),
    "log1p": _log1p,
    "log2": lambda w, o, x: w.op("Div", w.op("Log", x), w.number(math.log(2), o.out)),
    "ne": lambda w, o, a, b: w.op("Not", w.op("Equal", a, b)),
    "pad": _pad,
    "reduce_and": _truth("ReduceMin"),
    "reduce_max": _reduction("ReduceMax"),
    "reduce_min": _reduction("ReduceMin"),
    "reduce_or": _truth("ReduceMax"),
    "rem": lambda w, o, a, b: w.op("Mod", a, b, fmod=1),
    "rev": _reversed,
    "round": _round,
    "rsqrt": lambda w, o, x: w.op("Reciprocal", w.op("Sqrt", x)),
    "select_n": _select,
    "sort": _sort,
    "top_k": _top_k,
}
"""The rule of each primitive, by its name."""
