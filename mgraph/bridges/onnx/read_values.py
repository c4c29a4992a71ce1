"""Rules for reading ONNX operations that compute."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...node import Node
from ...ops import elementwise, reduce
from ...ops.arithmetic import div, maximum, minimum, minus, mult, negate, plus
from ...ops.cumulative import cumsum
from ...ops.norm import layer_norm
from ...ops.order import topk
from ...ops.power import power
from ...ops.product import affine, bdot, dot
from ...ops.shape import reshape
from ...ops.softmax import logsoftmax, softmax
from ...ops.structure import cast
from ...types import Type
from .reader import ReadOperation, ReadRule, Value, narrowed, type_of


def _unary(operator: Callable[[Any], Node]) -> ReadRule:
    return lambda o, x: operator(o.node(x))


def _jax(function: Callable[..., Any]) -> ReadRule:
    return lambda o, *xs: o.jax(function, *xs)


def _binary(operator: Callable[[Any, Any], Node]) -> ReadRule:
    """An operator of two operands; a known scalar is passed as a number."""

    def rule(o: ReadOperation, a: Value, b: Value) -> Node:
        rank = max(len(v.shape) for v in (a, b) if isinstance(v, Node))
        return operator(_operand(o, a, rank), _operand(o, b, rank))

    return rule


def _operand(o: ReadOperation, value: Value, rank: int) -> Any:
    if isinstance(value, np.ndarray) and value.size == 1 and value.ndim <= rank and value.dtype.kind in "fiu":
        return value.item()
    return o.node(value)


def _of_nodes(operator: Callable[[Any, Any], Node]) -> ReadRule:
    """An operator of two nodes, folded over any number of them in order."""
    return lambda o, *values: functools.reduce(operator, o.nodes(values))


def _div(o: ReadOperation, a: Value, b: Value) -> Node:
    if o.node(a).value_type.is_float:
        return div(o.node(a), o.node(b))
    return o.jax(lambda a, b: jax.lax.div(*jnp.broadcast_arrays(a, b)), a, b)


def _pow(o: ReadOperation, x: Value, exponent: Value) -> Node:
    base = o.node(x)
    single = isinstance(exponent, np.ndarray) and exponent.size == 1 and exponent.ndim <= len(base.shape)
    if single and float(exponent.item()).is_integer():
        whole = int(exponent.item())
        if base.value_type.is_float:
            return power(base, float(whole))
        if whole >= 0:
            return o.jax(lambda v: jax.lax.integer_pow(v, whole), base)
    # In ONNX the power has the type of the base.
    return o.jax(lambda v, e: jnp.power(v, e).astype(v.dtype), x, exponent)


def _clip(o: ReadOperation, x: Value, low: Value = None, high: Value = None) -> Node:
    least, most = (None if v is None else narrowed(o.known(v, "bound")).item() for v in (low, high))
    node = o.node(x)
    if node.value_type.is_float and least is not None and most is not None and -least == most > 0:
        return elementwise.clip(node, most)
    return o.jax(lambda v: jnp.clip(v, least, most), node)


def _is_inf(o: ReadOperation, x: Value) -> Node:
    signs = bool(o.get("detect_negative", 1)), bool(o.get("detect_positive", 1))
    found = {(True, True): jnp.isinf, (True, False): jnp.isneginf, (False, True): jnp.isposinf}
    return o.jax(found.get(signs, lambda v: jnp.zeros_like(v, bool)), x)


def _gelu(o: ReadOperation, x: Value) -> Node:
    if o.get("approximate", "none") == "none":
        return elementwise.gelu(o.node(x))
    return o.jax(jax.nn.gelu, x)


def _cast(o: ReadOperation, x: Value) -> Node:
    return cast(o.node(x), type_of(o.reader, o.attributes["to"]))


# ---------------------------------------------------------------- along axes


def _reduction(operator: Callable[[Node, int], Node]) -> ReadRule:
    """A reduction along one or several axes, one after the other."""

    def rule(o: ReadOperation, x: Value, given: Value = None) -> Node:
        y = node = o.node(x)
        axes = o.axes(given)
        if not axes:
            axes = [] if o.get("noop_with_empty_axes", 0) else list(range(len(node.shape)))
        for axis in axes:
            y = operator(y, axis)
        if o.get("keepdims", 1):
            return y
        dropped = {axis % len(node.shape) for axis in axes}
        return reshape(y, tuple(n for i, n in enumerate(node.shape) if i not in dropped))

    return rule


def _softmax(o: ReadOperation, x: Value) -> Node:
    return softmax(o.node(x), axis=o.get("axis", -1))


def _logsoftmax(o: ReadOperation, x: Value) -> Node:
    node, axis = o.node(x), o.get("axis", -1)
    if axis in (-1, len(node.shape) - 1):
        return logsoftmax(node)
    return o.jax(lambda v: jax.nn.log_softmax(v, axis), node)


def _cumsum(o: ReadOperation, x: Value, axis: Value) -> Node:
    (along,) = o.ints(axis, "axis")
    return cumsum(o.node(x), along, bool(o.get("reverse", 0)), bool(o.get("exclusive", 0)))


def _layer_norm(o: ReadOperation, x: Value, scale: Value, bias: Value = None) -> Node:
    node = o.node(x)
    if o.get("axis", -1) not in (-1, len(node.shape) - 1) or len(o.source.output) > 1:
        raise o.refuse("only over the last axis, and without the statistics")
    beta = None if bias is None else o.node(bias)
    return layer_norm(node, o.node(scale), beta, o.get("epsilon", 1e-5))


def _top_k(o: ReadOperation, x: Value, k: Value) -> tuple[Node, Node]:
    axis = o.get("axis", -1)
    values, places = topk(o.node(x), o.ints(k, "number")[0], axis, bool(o.get("largest", 1)))
    return values, cast(places, Type.int32)  # a model may subtract from them


def _best(largest: bool) -> ReadRule:
    def rule(o: ReadOperation, x: Value) -> Node:
        node, axis = o.node(x), o.get("axis", 0)
        if o.get("select_last_index", 0):
            raise o.refuse("only the first of equal elements is found")
        places = cast(topk(node, 1, axis, largest)[1], Type.int32)
        if o.get("keepdims", 1):
            return places
        return reshape(places, tuple(n for i, n in enumerate(node.shape) if i != axis % len(node.shape)))

    return rule


# ---------------------------------------------------------------- products


def _matmul(o: ReadOperation, a: Value, b: Value) -> Node:
    left, right = o.node(a), o.node(b)
    if len(right.shape) == 2 and len(left.shape) >= 2:
        return dot(left, right)
    if len(right.shape) > 2 and len(left.shape) >= 2:
        return bdot(left, right)
    return o.jax(jnp.matmul, left, right)


def _gemm(o: ReadOperation, a: Value, b: Value, c: Value = None) -> Node:
    left, right, alpha = o.node(a), o.node(b), o.get("alpha", 1.0)
    flags = bool(o.get("transA", 0)), bool(o.get("transB", 0))
    if c is None:
        return dot(left, right, *flags, alpha)
    bias = mult(o.node(c), o.get("beta", 1.0))
    columns = right.shape[0 if flags[1] else 1]
    if math.prod(bias.shape) == columns and bias.shape[-1:] == (columns,):
        return affine(left, right, bias, *flags, alpha)
    return plus(dot(left, right, *flags, alpha), bias)


def _conv(o: ReadOperation, x: Value, kernel: Value, bias: Value = None) -> Node:
    rank = len(o.node(x).shape) - 2
    pads = o.get("pads", [0] * 2 * rank)
    if o.get("auto_pad", "NOTSET") != "NOTSET":
        raise o.refuse("only explicit paddings are read")
    strides, dilations = o.get("strides", [1] * rank), o.get("dilations", [1] * rank)
    pairs, groups = list(zip(pads[:rank], pads[rank:], strict=True)), o.get("group", 1)

    def convolved(x: Any, kernel: Any, *bias: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, kernel, strides, pairs, rhs_dilation=dilations, feature_group_count=groups
        )
        return y + bias[0].reshape(-1, *[1] * rank) if bias else y

    return o.jax(convolved, x, kernel, *([] if bias is None else [bias]))


def _pool(largest: bool) -> ReadRule:
    def rule(o: ReadOperation, x: Value) -> Node:
        window = tuple(o.attributes["kernel_shape"])
        rank = len(window)
        pads, strides = o.get("pads", [0] * 2 * rank), tuple(o.get("strides", [1] * rank))
        plain = o.get("auto_pad", "NOTSET") == "NOTSET" and not o.get("ceil_mode", 0)
        plain = plain and set(o.get("dilations", [1])) == {1} and len(o.source.output) == 1
        if not plain or not (largest or o.get("count_include_pad", 0) or not any(pads)):
            raise o.refuse("only with explicit paddings that count, without dilations, ceil_mode and indices")
        pairs = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
        shape = (1, 1, *window), (1, 1, *strides), pairs

        def pooled(x: Any) -> Any:
            if largest:
                return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *shape)
            return jax.lax.reduce_window(x, 0.0, jax.lax.add, *shape) / math.prod(window)

        return o.jax(pooled, x)

    return rule


VALUES: dict[str, ReadRule] = {
    "Abs": _unary(elementwise.abs),
    "Add": _binary(plus),
    "And": _jax(jnp.logical_and),
    "ArgMax": _best(True),
    "ArgMin": _best(False),
    "AveragePool": _pool(False),
    "BitwiseAnd": _jax(jnp.bitwise_and),
    "BitwiseNot": _jax(jnp.bitwise_not),
    "BitwiseOr": _jax(jnp.bitwise_or),
    "BitwiseXor": _jax(jnp.bitwise_xor),
    "Cast": _cast,
    "Ceil": _jax(jnp.ceil),
    "Clip": _clip,
    "Conv": _conv,
    "Cos": _unary(elementwise.cos),
    "CumSum": _cumsum,
    "Div": _div,
    "Elu": lambda o, x: o.jax(lambda v: jax.nn.elu(v, o.get("alpha", 1.0)), x),
    "Equal": _jax(jnp.equal),
    "Erf": _jax(jax.lax.erf),
    "Exp": _unary(elementwise.exp),
    "Floor": _jax(jnp.floor),
    "Gelu": _gelu,
    "Gemm": _gemm,
    "Greater": _jax(jnp.greater),
    "GreaterOrEqual": _jax(jnp.greater_equal),
    "IsInf": _is_inf,
    "IsNaN": _jax(jnp.isnan),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda o, x: elementwise.prelu(o.node(x), o.get("alpha", 0.01)),
    "Less": _jax(jnp.less),
    "LessOrEqual": _jax(jnp.less_equal),
    "Log": _unary(elementwise.log),
    "LogSoftmax": _logsoftmax,
    "MatMul": _matmul,
    "Max": _of_nodes(maximum),
    "MaxPool": _pool(True),
    "Min": _of_nodes(minimum),
    "Mod": lambda o, a, b: o.jax(jnp.fmod if o.get("fmod", 0) else jnp.mod, a, b),
    "Mul": _binary(mult),
    "Neg": _unary(negate),
    "Not": _jax(jnp.logical_not),
    "Or": _jax(jnp.logical_or),
    "Pow": _pow,
    "Reciprocal": _jax(lambda x: 1 / x),
    "ReduceLogSumExp": _reduction(reduce.logsumexp),
    "ReduceMax": _reduction(reduce.max),
    "ReduceMean": _reduction(reduce.mean),
    "ReduceMin": _reduction(reduce.min),
    "ReduceProd": _reduction(reduce.prod),
    "ReduceSum": _reduction(reduce.sum),
    "Relu": _unary(elementwise.relu),
    "Round": _jax(jnp.round),
    "Sigmoid": _unary(elementwise.sigmoid),
    "Sign": _jax(jnp.sign),
    "Sin": _unary(elementwise.sin),
    "Softmax": _softmax,
    "Softplus": _jax(jax.nn.softplus),
    "Sqrt": _unary(elementwise.sqrt),
    "Sub": _binary(minus),
    "Sum": _of_nodes(plus),
    "Tan": _unary(elementwise.tan),
    "Tanh": _unary(elementwise.tanh),
    "TopK": _top_k,
    "Where": lambda o, which, a, b: o.jax(jnp.where, which, a, b),
    "Xor": _jax(jnp.logical_xor),
    **{
        name: _jax(getattr(jnp, name.lower()))
        for name in ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh")
    },
}
"""The rules by the operation's name."""
