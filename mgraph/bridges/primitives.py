"""Rules that turn JAX's primitives into nodes: operators with the same value and gradient, else nodes of the
primitive itself.

Some operators differ from the primitive, so no rule uses them: ``max``, ``min`` and their reductions (JAX
divides a gradient among ties), the comparisons (1 and 0 in mgraph, booleans in JAX), ``abs`` (its slope at 0
is 0, JAX's 1), ``x / 2`` as ``x * 0.5``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..node import Node
from ..ops.arithmetic import DivNodeOp, logaddexp, minus, mult, negate, plus
from ..ops.cumulative import LogCumSumExpNodeOp, cumsum
from ..ops.elementwise import cos, exp, log, relu, sigmoid, sin, sqrt, square, tan, tanh
from ..ops.power import power
from ..ops.product import bdot, dot
from ..ops.reduce import over_axes, prod
from ..ops.reduce import sum as sum_along
from ..ops.scan import scan
from ..ops.shape import SliceViewNodeOp, concatenate, repeat, reshape, transpose
from ..ops.structure import cast, stop_gradient
from ..shape import Shape
from ..types import as_type
from .calls import closed, parts_of_scan
from .equations import JAX_FOLDER, Equation, Result, Rule, Spread, whole
from .primitive_node import ELEMENTWISE, OTHERS, TYPED

# ---------------------------------------------------------------- element by element


def _elementwise(equation: Equation) -> Result:
    return equation.as_primitive(equation.all_loose())[0]


def _unary(operator: Callable[[Any], Node]) -> Rule:
    return lambda equation: operator(equation.loose(0))


def _binary(operator: Callable[..., Node], *, numbers: bool) -> Rule:
    """An operator of two operands, one of which may be a number."""

    def rule(equation: Equation) -> Result:
        a, b = equation.number(0), equation.number(1)
        if not numbers or (a is None) == (b is None):
            return operator(*equation.all_loose())
        return operator(equation.loose(0) if a is None else a, equation.loose(1) if b is None else b)

    return rule


def _div(equation: Equation) -> Result:
    if not as_type(equation.out.dtype).is_float:
        return _elementwise(equation)
    return DivNodeOp(*equation.all_loose())


def _integer_pow(equation: Equation) -> Result:
    x, exponent = equation.loose(0), equation.params["y"]
    if not x.value_type.is_float:
        return _elementwise(equation)
    return square(x) if exponent == 2 else power(x, exponent)


def _cast(equation: Equation) -> Result:
    return cast(equation.loose(0), as_type(equation.params["new_dtype"]))


def _same(equation: Equation) -> Result:
    return [equation.node(i) if isinstance(v, np.ndarray) else v for i, v in enumerate(equation.values)]


# ---------------------------------------------------------------- shapes


def _broadcast(equation: Equation) -> Result:
    """A reshape that gives new axes the size 1; elementwise operators do the rest of the broadcast."""
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    x = equation.loose(0)
    sizes = [1] * len(shape)
    for axis, place in enumerate(places):
        sizes[place] = x.shape[axis]
    return Spread(reshape(x, tuple(sizes)), tuple(shape))


def _to_shape(equation: Equation) -> Result:
    return reshape(equation.node(0), tuple(int(n) for n in equation.out.shape))


def _reshape(equation: Equation) -> Result:
    order = equation.params.get("dimensions")
    x = equation.node(0)
    return reshape(x if order is None else transpose(x, order), tuple(equation.out.shape))


def _transpose(equation: Equation) -> Result:
    return _reordered(equation.node(0), equation.params["permutation"])


def _reordered(x: Node, axes: Sequence[int]) -> Node:
    return x if list(axes) == list(range(len(axes))) else transpose(x, tuple(axes))


def _stack(equation: Equation) -> Result:
    axis = equation.params["axis"]
    parts = [reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in equation.all_nodes()]
    return concatenate(parts, axis)


def _unstack(equation: Equation) -> Result:
    x, axis = equation.node(0), equation.params["axis"]
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [reshape(_part(x, axis, i, i + 1), shape) for i in range(x.shape[axis])]


def _tile(equation: Equation) -> Result:
    x = equation.node(0)
    for axis, count in enumerate(equation.params["reps"]):
        x = repeat(x, int(count), axis) if count else _part(x, axis, 0, 0)
    return x


def _slice(equation: Equation) -> Result:
    x = equation.node(0)
    starts, ends = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or (1,) * len(starts)
    for axis, (begin, end, stride) in enumerate(zip(starts, ends, strides, strict=True)):
        x = _part(x, axis, begin, end, stride)
    return x


def _part(x: Node, axis: int, begin: int, end: int, stride: int = 1) -> Node:
    if (begin, end, stride) == (0, x.shape[axis], 1):
        return x
    if begin >= end:
        begin, end, stride = 0, 0, 1
    return SliceViewNodeOp(x, axis=axis, begin=int(begin), end=int(end), stride=int(stride))


def _split(equation: Equation) -> Result:
    x, axis = equation.node(0), equation.params["axis"]
    ends = np.cumsum(equation.params["sizes"])
    return [_part(x, axis, end - size, end) for end, size in zip(ends, equation.params["sizes"], strict=True)]


def _iota(equation: Equation) -> Result:
    shape, axis = tuple(equation.params["shape"]), equation.params["dimension"]
    sizes = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    numbers = np.arange(shape[axis]).astype(equation.params["dtype"]).reshape(sizes)
    return Spread(equation.walk.constant(numbers), shape)


def _empty(equation: Equation) -> Result:
    """Zeros, where JAX leaves the numbers open."""
    shape = tuple(equation.out.shape)
    return Spread(equation.walk.constant(np.zeros((1,) * len(shape), equation.out.dtype)), shape)


# ---------------------------------------------------------------- along axes


def _reduction(operator: Callable[[Node, int], Node]) -> Rule:
    """A reduction over several axes."""

    def rule(equation: Equation) -> Result:
        axes = tuple(sorted(equation.params["axes"]))
        return over_axes(operator, equation.node(0), axes, tuple(equation.out.shape))

    return rule


def _cumsum(equation: Equation) -> Result:
    return cumsum(equation.node(0), equation.params["axis"], equation.params["reverse"])


def _logcumsumexp(equation: Equation) -> Result:
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    return LogCumSumExpNodeOp(equation.node(0), axis=axis, reverse=reverse)


# ---------------------------------------------------------------- products


def _dot_general(equation: Equation) -> Result:
    """A product of matrices or of batches of matrices; axes of other operands are moved and merged first."""
    a, b = equation.node(0), equation.node(1)
    plain = equation.params.get("precision") is None and a.value_type is b.value_type
    if not (plain and a.value_type.is_float and equation.out.dtype == a.value_type.dtype):
        return equation.as_primitive([a, b])[0]
    (inner_a, inner_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    if not batch_a and len(inner_a) == 1 and len(b.shape) == 2 and inner_a[0] == len(a.shape) - 1 > 0:
        return dot(a, b, trans_b=inner_b[0] == 1)
    free_a = [i for i in range(len(a.shape)) if i not in (*inner_a, *batch_a)]
    free_b = [i for i in range(len(b.shape)) if i not in (*inner_b, *batch_b)]
    left = _matrices(a, batch_a, free_a, inner_a)
    right = _matrices(b, batch_b, inner_b, free_b)
    y = bdot(left, right) if batch_a else dot(left, right)
    return reshape(y, tuple(equation.out.shape))


def _matrices(x: Node, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> Node:
    """``x`` as a batch of matrices, one for each index of the ``batch`` axes; without ``batch`` axes, as one
    matrix."""

    def size(axes: Sequence[int]) -> int:
        return math.prod(x.shape[i] for i in axes)

    shape: Shape = (*(x.shape[i] for i in batch), size(rows), size(columns))
    return reshape(_reordered(x, (*batch, *rows, *columns)), shape)


def _node_of_its_own(equation: Equation) -> Result:
    return equation.as_primitive(equation.all_nodes())


UNARY: dict[str, Callable[[Any], Node]] = {
    "cos": cos,
    "exp": exp,
    "log": log,
    "logistic": sigmoid,
    "neg": negate,
    "one_minus_square": lambda x: minus(1, square(x)),
    "sin": sin,
    "sqrt": sqrt,
    "square": square,
    "stop_gradient": stop_gradient,
    "tan": tan,
    "tanh": tanh,
}
"""Unary operators, by the primitive with the same value."""


def _inlined(name: str) -> Rule:
    """Inlines the call of a function that has no rule of its own."""

    def rule(equation: Equation) -> Result:
        return equation.walk.inline(closed(equation.params[name]), equation.values)

    return rule


def _custom_call(equation: Equation) -> Result:
    """A function keeps its own rule; some of JAX's functions become operators."""
    closed = equation.params["call_jaxpr"]
    name, _, file = (getattr(closed.jaxpr.debug_info, "func_src_info", None) or "").partition(" at ")
    if name in _KNOWN and file.startswith(JAX_FOLDER):
        return _KNOWN[name](equation)
    return equation.as_call()


_KNOWN: dict[str, Callable[[Equation], Node]] = {
    "relu": lambda equation: relu(equation.loose(0)),
    "logaddexp": lambda equation: logaddexp(equation.loose(0), equation.loose(1)),
}
"""Operators for functions of JAX that have a rule of their own."""


def _scan(equation: Equation) -> Result:
    params = equation.params
    body = params["jaxpr"]
    operands = [equation.aval(i) for i in range(len(equation.values))]
    consts, carried = parts_of_scan(body, operands, equation.outs)
    nodes = equation.all_nodes()
    outside, first, xs = nodes[:consts], nodes[consts : consts + carried], nodes[consts + carried :]
    # scan needs a sequence: a loop without one runs over zeros.
    counted = xs or [equation.walk.constant(np.zeros(params["length"], np.int32))]

    def step(state: tuple[Node, ...], given: tuple[Node, ...]) -> tuple[Any, Any]:
        results = [whole(v) for v in equation.walk.inline(body, [*outside, *state, *given[: len(xs)]])]
        return tuple(results[:carried]), tuple(results[carried:])

    last, stacked = scan(
        step, tuple(first), tuple(counted), reverse=params["reverse"], unroll=int(params["unroll"])
    )
    return [*last, *stacked]


WITHOUT_RULES: dict[str, Rule] = dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), _inlined("call_jaxpr"))
"""Rules for values alone, without gradients: functions with a rule of their own are inlined."""


RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys((*OTHERS, TYPED), _node_of_its_own),
    **dict.fromkeys(("cond", "while"), Equation.as_call),
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint", "composite"), _inlined("jaxpr")),
    **dict.fromkeys(("closed_call", "core_call"), _inlined("call_jaxpr")),
    "custom_jvp_call": _custom_call,
    "custom_vjp_call": _custom_call,
    "scan": _scan,
    **dict.fromkeys(("copy", "copy_p", "name", "optimization_barrier"), _same),
    **{name: _unary(operator) for name, operator in UNARY.items()},
    "add": _binary(plus, numbers=True),
    "add_any": _binary(plus, numbers=True),
    "sub": _binary(minus, numbers=True),
    "mul": _binary(mult, numbers=True),
    "div": _div,
    "integer_pow": _integer_pow,
    "convert_element_type": _cast,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _to_shape,
    "expand_dims": _to_shape,
    "transpose": _transpose,
    "concatenate": lambda equation: concatenate(equation.all_nodes(), equation.params["dimension"]),
    "slice": _slice,
    "stack": _stack,
    "tile": _tile,
    "unstack": _unstack,
    "split": _split,
    "empty": _empty,
    "iota": _iota,
    "reduce_sum": _reduction(sum_along),
    "reduce_prod": _reduction(prod),
    "cumsum": _cumsum,
    "cumlogsumexp": _logcumsumexp,
    "dot_general": _dot_general,
}
"""The rule of each primitive, by its name."""
