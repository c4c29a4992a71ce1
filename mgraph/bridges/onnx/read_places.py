"""Rules for reading loops, and ONNX operations that move, select and overwrite elements."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...node import Node
from ...ops.index import gather, index_select, places_along, scatter
from ...ops.scan import scan
from ...ops.shape import SliceViewNodeOp, concatenate, reshape, transpose
from .reader import ReadOperation, ReadRule, Value, narrowed


def _same(o: ReadOperation, x: Value, *_: Value) -> Value:
    return x


def _dropout(o: ReadOperation, x: Value, ratio: Value = None, training: Value = None) -> list[Value]:
    if training is not None and o.known(training, "mode").any():
        raise o.refuse("only outside training, where it changes nothing, is read")
    return [x, np.ones(o.node(x).shape, bool)][: len(o.source.output)]


def _shape(o: ReadOperation, x: Value) -> np.ndarray:
    shape = np.array(o.node(x).shape, np.int64)
    return shape[o.get("start", 0) : o.get("end")]


def _size(o: ReadOperation, x: Value) -> np.ndarray:
    return np.asarray(math.prod(o.node(x).shape), np.int64)


def _reshape(o: ReadOperation, x: Value, to: Value) -> Node:
    node, sizes = o.node(x), o.ints(to, "shape")
    if not o.get("allowzero", 0):
        sizes = [node.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    if -1 in sizes:
        rest = math.prod(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = math.prod(node.shape) // rest if rest else 0
    return reshape(node, tuple(sizes))


def _squeeze(o: ReadOperation, x: Value, given: Value = None) -> Node:
    node, axes = o.node(x), o.axes(given)
    rank = len(node.shape)
    dropped = {a % rank for a in axes} if axes is not None else {i for i in range(rank) if node.shape[i] == 1}
    return reshape(node, tuple(n for i, n in enumerate(node.shape) if i not in dropped))


def _unsqueeze(o: ReadOperation, x: Value, given: Value = None) -> Node:
    node, axes = o.node(x), o.axes(given) or []
    rank = len(node.shape) + len(axes)
    places, sizes = {a % rank for a in axes}, iter(node.shape)
    return reshape(node, tuple(1 if i in places else next(sizes) for i in range(rank)))


def _flatten(o: ReadOperation, x: Value) -> Node:
    node, axis = o.node(x), o.get("axis", 1)
    split = axis % len(node.shape) if axis < 0 else axis
    return reshape(node, (math.prod(node.shape[:split]), math.prod(node.shape[split:])))


def _transpose(o: ReadOperation, x: Value) -> Node:
    node = o.node(x)
    return transpose(node, o.get("perm", list(reversed(range(len(node.shape))))))


def _concat(o: ReadOperation, *xs: Value) -> Node:
    return concatenate(o.nodes(xs), o.attributes["axis"])


def _slice(
    o: ReadOperation, x: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None
) -> Node:
    y = o.node(x)
    begins, ends_ = o.ints(starts, "start"), o.ints(ends, "end")
    along = list(range(len(begins))) if axes is None else o.ints(axes, "axes")
    strides = [1] * len(begins) if steps is None else o.ints(steps, "steps")
    for axis, begin, end, stride in zip(along, begins, ends_, strides, strict=True):
        y = _part(o, y, axis % len(y.shape), begin, end, stride)
    return y


def _part(o: ReadOperation, x: Node, axis: int, begin: int, end: int, stride: int) -> Node:
    positions = range(x.shape[axis])[begin:end:stride]
    if stride < 0:
        begin = max(begin, -x.shape[axis])  # a begin before the first element means the first
        index = (*[slice(None)] * axis, slice(begin, end if end >= -x.shape[axis] else None, stride))
        return o.jax(lambda v: v[index], x)
    if not positions:
        return SliceViewNodeOp(x, axis=axis, begin=0, end=0, stride=1)
    if len(positions) == x.shape[axis]:
        return x
    return SliceViewNodeOp(x, axis=axis, begin=positions[0], end=positions[-1] + 1, stride=stride)


def _split(o: ReadOperation, x: Value, sizes: Value = None) -> list[Node]:
    node, axis = o.node(x), o.get("axis", 0)
    axis %= len(node.shape)
    count, size = len(o.source.output), node.shape[axis]
    step = -(-size // count)
    parts = o.get("split") or [min(step, size - i * step) for i in range(count)]
    parts = parts if sizes is None else o.ints(sizes, "sizes")
    ends = np.cumsum(parts)
    return [_part(o, node, axis, int(e - n), int(e), 1) for n, e in zip(parts, ends, strict=True)]


def _pad(o: ReadOperation, x: Value, pads: Value, value: Value = None, axes: Value = None) -> Node:
    node = o.node(x)
    if o.get("mode", "constant") != "constant":
        raise o.refuse("only padding with a number is read")
    amounts, rank = o.ints(pads, "paddings"), len(node.shape)
    along = list(range(rank)) if axes is None else [a % rank for a in o.ints(axes, "axes")]
    config = [(0, 0)] * rank
    for axis, low, high in zip(along, amounts[: len(along)], amounts[len(along) :], strict=True):
        config[axis] = (low, high)
    if any(n + low + high < 0 for n, (low, high) in zip(node.shape, config, strict=True)):
        raise o.refuse(f"the paddings {amounts} remove more than the shape {node.shape} has")
    fill = 0 if value is None else narrowed(o.known(value, "padding")).item()
    ends = [(low, high, 0) for low, high in config]
    return o.jax(lambda v: jax.lax.pad(v, jnp.asarray(fill, v.dtype), ends), node)


def _expand(o: ReadOperation, x: Value, to: Value) -> Node:
    node = o.node(x)
    shape = np.broadcast_shapes(node.shape, tuple(o.ints(to, "shape")))
    if shape == node.shape:
        return node
    return o.jax(lambda v: jnp.broadcast_to(v, shape), node)


def _gather(o: ReadOperation, x: Value, indices: Value) -> Node:
    node, chosen = o.node(x), o.node(indices)
    axis = o.get("axis", 0) % len(node.shape)
    flat = index_select(node, axis, reshape(chosen, (math.prod(chosen.shape),)))
    return reshape(flat, (*node.shape[:axis], *chosen.shape, *node.shape[axis + 1 :]))


def _gather_elements(o: ReadOperation, x: Value, indices: Value) -> Node:
    node, chosen, axis = o.node(x), o.node(indices), o.get("axis", 0)
    along = axis % len(node.shape)
    if _cover(node, chosen, along):
        return gather(node, axis, chosen)
    made: Node = o.jax(lambda v, i: jnp.take_along_axis(v[tuple(map(slice, _kept(i, v, along)))], i, along),
                       node, chosen)  # fmt: skip
    return made


def _kept(indices: Any, x: Any, along: int) -> list[int]:
    return [x.shape[i] if i == along else n for i, n in enumerate(indices.shape)]


def _scatter_elements(o: ReadOperation, x: Value, indices: Value, updates: Value) -> Node:
    if o.get("reduction", "none") != "none":
        raise o.refuse("only overwriting is read")
    node, chosen, axis = o.node(x), o.node(indices), o.get("axis", 0)
    along = axis % len(node.shape)
    if _cover(node, chosen, along):
        return scatter(node, axis, chosen, o.node(updates))
    made: Node = o.jax(lambda v, i, u: v.at[places_along(i, along)].set(u), node, chosen, updates)
    return made


def _cover(x: Node, indices: Node, along: int) -> bool:
    """Whether indices span all other axes of ``x``. In ONNX shorter ones select in the first rows only, where
    ``gather`` and ``scatter`` repeat an index."""
    sizes = zip(x.shape, indices.shape, strict=True)
    return all(n == m or i == along for i, (n, m) in enumerate(sizes))


def _scan(o: ReadOperation, *values: Value) -> tuple[Node, ...]:
    body, count = o.attributes["body"], o.attributes["num_scan_inputs"]
    states = len(values) - count
    written = len(body.output) - states
    flags = {
        *o.get("scan_input_directions", [0] * count),
        *o.get("scan_output_directions", [0] * written),
    }
    axes = {*o.get("scan_input_axes", [0]), *o.get("scan_output_axes", [0])}
    if len(flags) > 1 or axes != {0}:
        raise o.refuse("only along the first axis and in one direction")
    names = [info.name for info in body.input]
    outputs = [info.name for info in body.output]

    def step(state: tuple[Node, ...], given: tuple[Node, ...]) -> tuple[Any, Any]:
        inner = o.reader.inner()
        inner.values.update(zip(names, (*state, *given), strict=True))
        for tensor in body.initializer:
            inner.values[tensor.name] = o.reader.onnx.numpy_helper.to_array(tensor)
        inner.run(body.node)
        results = [inner.node(inner.values[name]) for name in outputs]
        return tuple(results[:states]), tuple(results[states:])

    nodes = o.nodes(values)
    last, stacked = scan(step, tuple(nodes[:states]), tuple(nodes[states:]), reverse=1 in flags)
    return *last, *stacked


PLACES: dict[str, ReadRule] = {
    "Concat": _concat,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Identity": _same,
    "Pad": _pad,
    "Reshape": _reshape,
    "Scan": _scan,
    "ScatterElements": _scatter_elements,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""The rules by the operation's name."""
