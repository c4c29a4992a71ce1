"""Rules for operators that compute: arithmetic, activations, reductions, losses, products, cells."""

from __future__ import annotations

import math

import numpy as np

from ...ops import (
    arithmetic,
    attention,
    cells,
    comparison,
    cumulative,
    dropout,
    elementwise,
    norm,
    order,
    output_loss,
    power,
    product,
    reduce,
    softmax,
)
from ...specs import Spec
from ...types import Type
from .writer import Name, Operation, Rule, Writer, one, rule_for


def _with_field(kind: str, name: str) -> Rule:
    """An operation on a child and the number in the operator's field ``name``."""
    return lambda w, o, x: w.op(kind, x, w.given(getattr(o.operator, name), o.out, o.where))


def _comparison(*kinds: str) -> Rule:
    """The comparison ``kinds[0]``, then the other ``kinds`` applied to its result, as 1 and 0."""

    def write(w: Writer, o: Operation, a: Name, b: Name) -> Name:
        holds = w.op(kinds[0], a, b)
        for kind in kinds[1:]:
            holds = w.op(kind, holds)
        return w.cast(holds, o.out.type)

    return write


def _reduction(kind: str) -> Rule:
    return lambda w, o, x: w.op(kind, x, w.ints(o.operator.axis), keepdims=1)


RULES: dict[type, Rule] = {
    arithmetic.PlusNodeOp: one("Add"),
    arithmetic.MinusNodeOp: one("Sub"),
    arithmetic.MultNodeOp: one("Mul"),
    arithmetic.DivNodeOp: one("Div"),
    arithmetic.NegNodeOp: one("Neg"),
    arithmetic.MaximumNodeOp: one("Max"),
    arithmetic.MinimumNodeOp: one("Min"),
    arithmetic.ScalarAddNodeOp: _with_field("Add", "c"),
    arithmetic.ScalarMultNodeOp: _with_field("Mul", "c"),
    comparison.LtNodeOp: _comparison("Less"),
    comparison.GtNodeOp: _comparison("Greater"),
    comparison.LeNodeOp: _comparison("Greater", "Not"),
    comparison.GeNodeOp: _comparison("Less", "Not"),
    comparison.NeNodeOp: lambda w, o, a, b: w.cast(_differ(w, a, b), o.out.type),
    comparison.EqNodeOp: lambda w, o, a, b: w.cast(w.op("Not", _differ(w, a, b)), o.out.type),
    elementwise.SigmoidNodeOp: one("Sigmoid"),
    elementwise.TanhNodeOp: lambda w, o, *xs: w.op("Tanh", xs[0] if len(xs) == 1 else w.op("Sum", *xs)),
    elementwise.ReLUNodeOp: one("Relu"),
    elementwise.PReLUNodeOp: lambda w, o, x: w.op("LeakyRelu", x, alpha=o.operator.alpha),
    elementwise.LogNodeOp: one("Log"),
    elementwise.ExpNodeOp: one("Exp"),
    elementwise.SinNodeOp: one("Sin"),
    elementwise.CosNodeOp: one("Cos"),
    elementwise.TanNodeOp: one("Tan"),
    elementwise.AbsNodeOp: one("Abs"),
    elementwise.ClipNodeOp: lambda w, o, x: w.op(
        "Clip", x, w.given(-o.operator.c, o.out, o.where), w.given(o.operator.c, o.out, o.where)
    ),
    elementwise.SquareNodeOp: lambda w, o, x: w.op("Mul", x, x),
    power.PowNodeOp: _with_field("Pow", "n"),
    power.ScalarPowNodeOp: _with_field("Pow", "c"),
    dropout.DropoutReluInplaceNodeOp: lambda w, o, x, *mask: w.op(
        "Relu", w.op("Mul", x, *mask) if mask else x
    ),
    reduce.SumNodeOp: _reduction("ReduceSum"),
    reduce.MeanNodeOp: _reduction("ReduceMean"),
    reduce.MaxNodeOp: _reduction("ReduceMax"),
    reduce.MinNodeOp: _reduction("ReduceMin"),
    reduce.ProdNodeOp: _reduction("ReduceProd"),
    reduce.LogSumExpNodeOp: _reduction("ReduceLogSumExp"),
    reduce.MeanSqrNodeOp: lambda w, o, x: _mean_square(w, x, o.operator.axis),
    reduce.RmsNodeOp: lambda w, o, x: w.op("Sqrt", _mean_square(w, x, o.operator.axis)),
    reduce.ScalarProductNodeOp: lambda w, o, a, b: _reduction("ReduceSum")(w, o, w.op("Mul", a, b)),
    softmax.SoftmaxNodeOp: lambda w, o, x: w.op("Softmax", x, axis=o.operator.axis),
    softmax.LogSoftmaxNodeOp: one("LogSoftmax", axis=-1),
    order.TopKNodeOp: lambda w, o, x: _top(w, o, x, o.operator.k),
    order.SortNodeOp: lambda w, o, x: _top(w, o, x, o.specs[0].shape[o.operator.axis]),
    cells.AttentionNodeOp: lambda w, o, va, *terms: w.op("MatMul", w.op("Tanh", w.op("Add", *terms)), va),
    cells.HighwayNodeOp: lambda w, o, y, x, t: _between(w, w.op("Sigmoid", t), y, x, o.out),
}
"""The rules by class."""

# ---------------------------------------------------------------- element by element


@rule_for(RULES, arithmetic.LogAddExpNodeOp)
def _(w: Writer, o: Operation, a: Name, b: Name) -> Name:
    apart = w.op("Neg", w.op("Abs", w.op("Sub", a, b)))
    distance = w.op("Where", w.op("Equal", a, b), w.number(0, o.out), apart)  # 0 for equal infinities, too
    return w.op("Add", w.op("Max", a, b), w.op("Log", w.op("Add", w.op("Exp", distance), w.number(1, o.out))))


@rule_for(RULES, elementwise.SwishNodeOp)
def _(w: Writer, o: Operation, x: Name) -> Name:
    scaled = x if o.operator.b == 1 else w.op("Mul", x, w.given(o.operator.b, o.out, o.where))
    return w.op("Mul", x, w.op("Sigmoid", scaled))


@rule_for(RULES, elementwise.GeluNodeOp)
def _(w: Writer, o: Operation, x: Name) -> Name:
    erf = w.op("Erf", w.op("Mul", x, w.number(math.sqrt(0.5), o.out)))
    share = w.op("Mul", w.op("Add", erf, w.number(1, o.out)), w.number(0.5, o.out))
    return w.op("Mul", x, share)


@rule_for(RULES, elementwise.SqrtNodeOp)
def _(w: Writer, o: Operation, x: Name) -> Name:
    return w.op("Sqrt", w.op("Add", x, w.number(o.operator.eps, o.out)) if o.operator.eps else x)


def _differ(w: Writer, a: Name, b: Name) -> Name:
    return w.op("Or", w.op("Less", a, b), w.op("Greater", a, b))


# ---------------------------------------------------------------- along an axis


def _inner(type_: Type) -> Type:
    """The element type in which to sum numbers of ``type_``."""
    return Type(np.promote_types(type_.dtype, np.float32).name)


def _mean_square(w: Writer, x: Name, axis: int) -> Name:
    return w.op("ReduceMean", w.op("Mul", x, x), w.ints(axis), keepdims=1)


@rule_for(RULES, reduce.CentredNodeOp)
def _(w: Writer, o: Operation, x: Name) -> Name:
    axis = w.ints(o.operator.axis)
    distance = w.op("Sub", x, w.op("Slice", x, w.ints(0), w.ints(1), axis))
    return w.op("Sub", distance, w.op("ReduceMean", distance, axis, keepdims=1))


@rule_for(RULES, cumulative.CumSumNodeOp)
def _(w: Writer, o: Operation, x: Name) -> Name:
    flags = {"reverse": int(o.operator.reverse), "exclusive": int(o.operator.exclusive)}
    return w.op("CumSum", x, w.constant(o.operator.axis, np.int64), **flags)


@rule_for(RULES, softmax.CrossEntropyNodeOp)
def _(w: Writer, o: Operation, logits: Name, labels: Name) -> Name:
    return _cross_entropy(w, o, o.out.type, logits, labels)[0]


@rule_for(RULES, output_loss.AffineCrossEntropyNodeOp)
def _(w: Writer, o: Operation, x: Name, matrix: Name, labels: Name, *bias: Name) -> tuple[Name, Name]:
    """Computes all logits at once: ONNX has no loop that would pay off."""
    logits = w.op("MatMul", x, _transposed(w, matrix, 2) if o.operator.trans_b else matrix)
    for each in bias:
        logits = w.op("Add", logits, w.op("Reshape", each, w.ints(-1)))
    return _cross_entropy(w, o, o.out[0].type, logits, labels)


def _cross_entropy(w: Writer, o: Operation, type_: Type, logits: Name, labels: Name) -> tuple[Name, Name]:
    """The loss of logits, and the logarithm of the sum of their exponentials. The axes of the logits before
    the last are those of the first child."""
    alpha = o.operator.alpha
    inner = _inner(o.specs[0].type)
    logits = w.cast(logits, inner) if inner is not o.specs[0].type else logits
    logs = w.op("LogSoftmax", logits, axis=-1)
    column = w.op("Reshape", w.cast(labels, Type.int64), w.dims((*o.specs[0].shape[:-1], 1)))
    loss = w.op("Neg", w.op("GatherElements", logs, column, axis=-1))
    lse = w.op("Add", loss, w.op("GatherElements", logits, column, axis=-1))
    if alpha:
        mean = w.op("ReduceMean", logs, w.ints(-1), keepdims=1)
        gold = w.op("Mul", loss, w.constant(1 - alpha, inner.dtype))
        loss = w.op("Sub", gold, w.op("Mul", mean, w.constant(alpha, inner.dtype)))
    return (loss, lse) if type_ is inner else (w.cast(loss, type_), w.cast(lse, type_))


def _top(w: Writer, o: Operation, x: Name, k: int) -> tuple[Name, Name]:
    largest = int(o.operator.descending)
    values, places = w.parts("TopK", 2, x, w.size(k), axis=o.operator.axis, largest=largest, sorted=1)
    return values, w.cast(places, Type.uint32)


# ---------------------------------------------------------------- normalization


def _normalization(centre: bool) -> Rule:
    """``x``, or its distance from its mean, over the root of its mean square, times gamma and plus beta if
    given. 16-bit numbers are computed in float32: squares and eps may be out of the range of float16."""

    def write(w: Writer, o: Operation, *children: Name) -> Name:
        inner = _inner(o.out.type)
        x, *scales = children if inner is o.out.type else [w.cast(child, inner) for child in children]
        if centre:
            x = w.op("Sub", x, w.op("ReduceMean", x, w.ints(-1), keepdims=1))
        eps = w.constant(o.operator.eps, inner.dtype)
        y = w.op("Div", x, w.op("Sqrt", w.op("Add", _mean_square(w, x, -1), eps)))
        for kind, scale in zip(("Mul", "Add"), scales, strict=False):
            y = w.op(kind, y, scale)
        return y if inner is o.out.type else w.cast(y, o.out.type)

    return write


RULES[norm.LayerNormalizationOp] = _normalization(centre=True)
RULES[norm.RMSNormalizationOp] = _normalization(centre=False)


# ---------------------------------------------------------------- products


def _transposed(w: Writer, x: Name, rank: int) -> Name:
    axes = list(range(rank))
    axes[-2:] = reversed(axes[-2:])
    return w.op("Transpose", x, perm=axes)


@rule_for(RULES, product.DotNodeOp, product.DotBatchedNodeOp)
def _(w: Writer, o: Operation, a: Name, b: Name) -> Name:
    left = _transposed(w, a, len(o.specs[0].shape)) if o.operator.trans_a else a
    right = _transposed(w, b, len(o.specs[1].shape)) if o.operator.trans_b else b
    y = w.op("MatMul", left, right)
    return y if o.operator.scale == 1 else w.op("Mul", y, w.given(o.operator.scale, o.out, o.where))


@rule_for(RULES, attention.DotProductAttentionNodeOp)
def _(w: Writer, o: Operation, query: Name, keys: Name, values: Name, *masks: Name) -> Name:
    scores = w.op("MatMul", query, _transposed(w, keys, len(o.specs[1].shape)))
    scores = w.op("Mul", scores, w.given(o.operator.scale, o.out, o.where))
    if o.operator.masked:
        scores = w.op("Add", scores, masks[0])
    weights = w.op("Softmax", scores, axis=-1)
    if o.operator.dropped:
        weights = w.op("Mul", weights, masks[-1])
    return w.op("MatMul", weights, values)


@rule_for(RULES, attention.CachedAttentionNodeOp)
def _(w: Writer, o: Operation, query: Name, used: Name, *others: Name) -> Name:
    count, specs, joined = o.operator.parts, o.specs[2:], []
    last = w.op("ReduceMax", w.cast(used, Type.int64), keepdims=0)
    start = w.constant(0, np.int64)
    for part in range(count):
        mask, (*outer, _) = others[2 * count + part], specs[2 * count + part].shape
        seen = w.op("GreaterOrEqual", last, start)
        mask = w.op("Where", seen, mask, w.number(-np.inf, o.out))
        joined.append(w.op("Expand", mask, w.dims((*outer, specs[part].shape[-2]))))
        if part + 1 < count:
            start = w.op("Add", start, w.count(specs[part].shape[-2]))
    keys = w.op("Concat", *others[:count], axis=len(specs[0].shape) - 2)
    values = w.op("Concat", *others[count : 2 * count], axis=len(specs[count].shape) - 2)
    mask = w.op("Concat", *joined, axis=len(specs[-1].shape) - 1)
    scores = w.op("MatMul", query, _transposed(w, keys, len(specs[0].shape)))
    scores = w.op("Add", w.op("Mul", scores, w.given(o.operator.scale, o.out, o.where)), mask)
    return w.op("MatMul", w.op("Softmax", scores, axis=-1), values)


@rule_for(RULES, product.AffineNodeOp)
def _(w: Writer, o: Operation, a: Name, b: Name, bias: Name) -> Name:
    y = RULES[product.DotNodeOp](w, o, a, b)
    flat = bias if len(o.specs[2].shape) == 1 else w.op("Reshape", bias, w.ints(-1))
    return w.op("Add", y, flat)


# ---------------------------------------------------------------- recurrent cells


def _blocks(w: Writer, x: Name, count: int) -> tuple[Name, ...]:
    return w.parts("Split", count, x, axis=-1, num_outputs=count)


def _between(w: Writer, share: Name, new: Name, old: Name, like: Spec) -> Name:
    """``share * new + (1 - share) * old``."""
    rest = w.op("Sub", w.number(1, like), share)
    return w.op("Add", w.op("Mul", share, new), w.op("Mul", rest, old))


@rule_for(RULES, cells.GRUFastNodeOp)
def _(w: Writer, o: Operation, state: Name, xW: Name, sU: Name, b: Name, *mask: Name) -> Name:
    (xr, xz, xh), (sr, sz, s), (br, bz, bh) = (_blocks(w, v, 3) for v in (xW, sU, b))
    r, z = (w.op("Sigmoid", w.op("Sum", *terms)) for terms in ((xr, sr, br), (xz, sz, bz)))
    if o.operator.final:
        h = w.op("Tanh", w.op("Add", xh, w.op("Mul", r, w.op("Add", s, bh))))
    else:
        h = w.op("Tanh", w.op("Sum", xh, w.op("Mul", r, s), bh))
    new = _between(w, z, state, h, o.out)
    return _between(w, mask[0], new, state, o.out) if mask else new


@rule_for(RULES, cells.LSTMCellNodeOp)
def _(w: Writer, o: Operation, cell: Name, xW: Name, sU: Name, b: Name, *mask: Name) -> Name:
    f, i, g, _ = _blocks(w, w.op("Sum", xW, sU, b), 4)
    kept, added = w.op("Mul", w.op("Sigmoid", f), cell), w.op("Mul", w.op("Sigmoid", i), w.op("Tanh", g))
    new: Name = w.op("Add", kept, added)
    return _between(w, mask[0], new, cell, o.out) if mask else new


@rule_for(RULES, cells.LSTMOutputNodeOp)
def _(w: Writer, o: Operation, cell: Name, xW: Name, sU: Name, b: Name) -> Name:
    *_, gate = _blocks(w, w.op("Sum", xW, sU, b), 4)
    return w.op("Mul", w.op("Sigmoid", gate), w.op("Tanh", cell))
