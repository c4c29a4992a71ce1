"""Rules for operators that move, select and overwrite elements, or look at windows of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ops import convolution, functors, index, pooling, regions, selection, shape, structure
from ...shape import Shape
from ...types import Type
from .writer import Name, Operation, Rule, Writer, rule_for, same

RULES: dict[type, Rule] = {
    structure.StopGradientNodeOp: same,
    structure.ClipGradientNodeOp: same,
    functors.CallbackNodeOp: same,
    structure.CastNodeOp: lambda w, o, x: w.cast(x, o.operator.to),
    structure.TupleViewNodeOp: lambda w, o, xs: xs[o.operator.index],
    structure.ChooseNodeOp: lambda w, o, *xs: xs[o.operator.index],
    shape.ReshapeNodeOp: lambda w, o, x: w.op(
        "Reshape", x, w.dims(o.operator.to), allowzero=int(0 in o.operator.to)
    ),
    shape.TransposeNodeOp: lambda w, o, x: (
        w.op("Transpose", x, perm=list(o.operator.axes)) if o.operator.axes else x
    ),
    shape.ConcatenateNodeOp: lambda w, o, *xs: w.op("Concat", *xs, axis=o.operator.axis),
}
"""The rules by class."""

# ---------------------------------------------------------------- shapes


@rule_for(RULES, shape.SliceViewNodeOp)
def _(w: Writer, o: Operation, x: Name) -> Name:
    begin, end = _bounds(w, o)
    return w.op("Slice", x, begin, end, w.ints(o.operator.axis), w.ints(o.operator.stride))


def _bounds(w: Writer, o: Operation) -> tuple[Name, Name]:
    """Where a slice begins and ends; in an open axis, counted from the nearer end."""
    s = o.operator
    size = o.specs[0].shape[s.axis]
    past = int(np.iinfo(np.int64).max) if s.end == size else None
    if w.axes.size(o.out.shape[s.axis]).axes:
        return w.size(s.begin), w.size(s.end)
    reach = min((w.axes.sizes[axis] for axis in w.axes.size(size).axes), default=2 * size) // 2
    if s.end <= reach:
        return w.ints(s.begin), w.ints(past or s.end)
    if s.begin >= size - reach:
        return w.ints(s.begin - size), w.ints(past or s.end - size)
    raise o.refuse(
        f"it takes {s.begin} to {s.end} of an open axis, recorded with {size}; only its first or its last "
        f"elements, at most {reach}, can be taken"
    )


@rule_for(RULES, shape.ShiftNodeOp)
def _(w: Writer, o: Operation, x: Name) -> Name:
    sizes = o.specs[0].shape
    moves = [max(-n, min(n, by)) for n, by in zip(sizes, o.operator.offsets, strict=True)]
    padded = x
    if any(moves):
        pads = w.ints(*(max(by, 0) for by in moves), *(max(-by, 0) for by in moves))
        padded = w.op("Pad", x, pads, w.number(o.operator.pad, o.out))
    for axis, by in enumerate(moves):
        if by:
            begin, end = (0, -by) if by > 0 else (-by, np.iinfo(np.int64).max)
            padded = w.op("Slice", padded, w.ints(begin), w.ints(end), w.ints(axis))
    return padded


# ---------------------------------------------------------------- indices


@rule_for(RULES, index.RowsNodeOp, index.ColsNodeOp)
def _(w: Writer, o: Operation, x: Name, indices: Name) -> Name:
    axis = int(isinstance(o.operator, index.ColsNodeOp))
    return w.op("Gather", x, w.cast(indices, Type.int64), axis=axis)


def _places(w: Writer, o: Operation, indices: Name) -> tuple[Name, Shape]:
    """Indices as int64, one for each indexed element, and the shape of the result."""
    shape = o.operator.picked(o.specs[0].shape, o.specs[1].shape)
    places = w.cast(indices, Type.int64)
    return (places if shape == o.specs[1].shape else w.op("Expand", places, w.dims(shape))), shape


@rule_for(RULES, index.GatherNodeOp)
def _(w: Writer, o: Operation, x: Name, indices: Name) -> Name:
    places, _ = _places(w, o, indices)
    return w.op("GatherElements", x, places, axis=o.operator.axis)


@rule_for(RULES, index.ScatterNodeOp)
def _(w: Writer, o: Operation, x: Name, indices: Name, source: Name) -> Name:
    places, shape = _places(w, o, indices)
    return w.op("ScatterElements", x, places, w.op("Expand", source, w.dims(shape)), axis=o.operator.axis)


@rule_for(RULES, index.RelocateNodeOp)
def _(w: Writer, o: Operation, x: Name, origins: Name, destinations: Name) -> Name:
    *lead, rows, dim = o.specs[0].shape
    if w.axes.is_open((*lead, rows, o.specs[1].shape[-1])):
        raise o.refuse("its positions are not known with open axes")
    groups, count = math.prod(lead), o.specs[1].shape[-1]
    places = w.op("Reshape", w.cast(origins, Type.int64), w.ints(groups, count))
    inside = w.op("Less", places, w.ints(rows))
    starts = w.op("Reshape", w.ints(*(group * rows for group in range(groups))), w.ints(groups, 1))
    safe = w.op("Add", w.op("Min", places, w.ints(rows - 1)), starts)
    found = w.op("Gather", w.op("Reshape", x, w.ints(groups * rows, dim)), safe, axis=0)
    known = w.op("Where", w.op("Unsqueeze", inside, w.ints(-1)), found, w.number(0, o.out))
    return w.op("Reshape", known, w.dims(o.out.shape))


@rule_for(RULES, index.InsertNodeOp)
def _(w: Writer, o: Operation, buffer: Name, value: Name, position: Name) -> Name:
    axis, sizes, written = o.operator.axis, o.specs[0].shape, o.specs[1].shape
    size, length = w.size(sizes[axis]), w.size(written[axis])
    start = w.op("Reshape", w.cast(position, Type.int64), w.ints(1))
    if not o.specs[2].type.value.startswith("u"):
        start = w.op("Where", w.op("Less", start, w.ints(0)), w.op("Add", start, size), start)
    start = w.op("Min", w.op("Max", start, w.ints(0)), w.op("Sub", size, length))
    along = w.ints(*(-1 if i == axis else 1 for i in range(len(sizes))))
    if written[axis] == 1:
        places = w.op("Range", w.constant(0, np.int64), w.count(sizes[axis]), w.constant(1, np.int64))
        here = w.op("Equal", w.op("Reshape", places, along), start)
        return w.op("Where", here, value, buffer)
    steps = w.op("Range", w.constant(0, np.int64), w.count(written[axis]), w.constant(1, np.int64))
    places = w.op("Expand", w.op("Reshape", w.op("Add", steps, start), along), w.dims(written))
    return w.op("ScatterElements", buffer, places, value, axis=axis)


@rule_for(RULES, selection.OneHotNodeOp)
def _(w: Writer, o: Operation, indices: Name) -> Name:
    axis, depth = o.operator.axis, o.operator.depth
    along = w.ints(*(-1 if i == axis else 1 for i in range(len(o.out.shape))))
    numbers = w.op("Range", w.constant(0, np.int64), w.count(depth), w.constant(1, np.int64))
    classes = w.op("Reshape", numbers, along)
    given = w.op("Unsqueeze", w.cast(indices, Type.int64), w.ints(axis))
    return w.cast(w.op("Equal", given, classes), o.operator.to)


@rule_for(RULES, regions.ReplaceSliceNodeOp)
def _(w: Writer, o: Operation, x: Name, value: Name) -> Name:
    """Writes to the flattened array, in which the region is a set of positions."""
    sizes = o.specs[0].shape
    if w.axes.is_open(sizes):
        raise o.refuse("its positions are not known with open axes")
    positions = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)[o.operator.places()]
    written = w.op("Reshape", w.op("Expand", value, w.dims(positions.shape)), w.ints(-1))
    flat = w.op("ScatterElements", w.op("Reshape", x, w.ints(-1)), w.ints(*positions.flat), written, axis=0)
    return w.op("Reshape", flat, w.dims(sizes))


# ---------------------------------------------------------------- windows


@rule_for(RULES, convolution.ConvolutionOp)
def _(w: Writer, o: Operation, x: Name, kernel: Name, bias: Name) -> Name:
    turned = w.op("Transpose", kernel, perm=[1, 0, 2, 3])
    return w.op("Conv", x, turned, w.op("Reshape", bias, w.ints(-1)), **_window(o))


@rule_for(RULES, pooling.PoolingOp)
def _(w: Writer, o: Operation, x: Name) -> Name:
    window: dict[str, Any] = {"kernel_shape": list(o.operator.window), **_window(o)}
    if o.operator.mode == "max":
        return w.op("MaxPool", x, **window)
    return w.op("AveragePool", x, count_include_pad=1, **window)


def _window(o: Operation) -> dict[str, Any]:
    pads = [low for low, _ in o.operator.pads] + [high for _, high in o.operator.pads]
    return {"strides": list(o.operator.strides), "pads": pads}
