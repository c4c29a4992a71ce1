"""Operators on regions of a tensor: padded around, replaced in place, reversed, broadcast."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import whole
from ..cases import Case
from ..errors import ShapeError
from ..node import NaryNodeOp, Node, UnaryNodeOp
from ..shape import Shape, Slice, as_shape, broadcasts_to
from ..specs import Spec, spec_of
from .arithmetic import number_as_node
from .operands import Gradients, axes_in, is_number, node, number_for, refusal, scalar

Pads = tuple[tuple[int, int], ...]
Region = tuple[tuple[int, int, int], ...]
"""For each axis, begin, end and stride, counted from the front."""


class PadNodeOp(UnaryNodeOp):
    type = "pad"
    pads: Pads
    value: float = 0.0
    runtime_fields = ("value",)
    cases = (
        Case((2, 3), pads=((1, 0), (0, 2)), value=0.0),
        Case((2, 3, 2), pads=((0, 0), (2, 1), (1, 1)), value=-1.5),
    )

    def forward_ops(self, x: Array) -> Array:
        fill = jnp.asarray(scalar(self.value, x), x.dtype)
        return jax.lax.pad(x, fill, [(low, high, 0) for low, high in self.pads])

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        begins = [low for low, _ in self.pads]
        ends = [low + n for (low, _), n in zip(self.pads, x.shape, strict=True)]
        return (jax.lax.slice(adj, begins, ends),)


def pad(x: Node, pads: Sequence[tuple[int, int]], value: float = 0.0) -> Node:
    """``x`` with ``value`` around it: for each axis, ``pads`` has the numbers of elements before and after.

    ``x`` itself if all are 0. ``ShapeError`` unless there is a pair of non-negative numbers for each axis,
    ``ElementTypeError`` for a ``value`` that an integer type cannot hold.

    Shape: that of ``x``, longer along each axis by both numbers.
    Gradient: the part of ``adj`` where ``x`` is.
    Source: nGraph, ``Pad``; no counterpart in Marian.
    """
    rank = len(node("pad", x).shape)
    try:
        pairs = tuple((operator.index(low), operator.index(high)) for low, high in pads)
    except (TypeError, ValueError):
        raise refusal("pad", f"expected a pair (before, after) for each axis, got {pads!r}", x) from None
    if len(pairs) != rank or any(n < 0 for pair in pairs for n in pair):
        raise refusal("pad", f"expected {rank} pairs of numbers of at least 0, got {pairs}", x)
    if not any(n for pair in pairs for n in pair):
        return x
    return PadNodeOp(x, pads=pairs, value=number_for("pad", x, value))


class ReverseNodeOp(UnaryNodeOp):
    type = "reverse"
    color = "grey"
    axes: tuple[int, ...]
    cases = (Case((4, 3), axes=(0,)), Case((2, 3, 4), axes=(0, 2)))

    def forward_ops(self, x: Array) -> Array:
        return jnp.flip(x, self.axes)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (jnp.flip(adj, self.axes),)


def reverse(x: Node, axes: int | Sequence[int] = 0) -> Node:
    """The elements in the opposite order along ``axes``, one or several; the first by default.

    Along axes of size 1 it is ``x`` itself. ``ShapeError`` for an axis that does not exist or is named twice.

    Shape: that of ``x``.
    Gradient: ``adj`` in the opposite order.
    Source: nGraph, ``Reverse``; no counterpart in Marian.
    """
    turned = tuple(axis for axis in axes_in("reverse", x, axes) if x.shape[axis] != 1)
    return ReverseNodeOp(x, axes=turned) if turned else x


class BroadcastToNodeOp(UnaryNodeOp):
    type = "broadcast"
    color = "grey"
    to: Shape
    cases = (Case((3,), to=(2, 3)), Case((2, 1, 3), to=(4, 2, 5, 3)))

    def new_spec(self, x: Spec) -> Spec:
        if not broadcasts_to(x.shape, self.to):
            raise ShapeError(f"a shape {x.shape} does not broadcast to {self.to}")
        return spec_of(self.to, x.type)

    def forward_ops(self, x: Array) -> Array:
        return jnp.broadcast_to(x, self.to)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj,)


def broadcast_to(x: Node, shape: Any) -> Node:
    """``x`` repeated along axes of size 1, and along new axes in front, to ``shape``; ``x`` itself if it has
    that shape. ``ShapeError`` if it does not fit.

    Shape: ``shape``.
    Gradient: ``adj`` summed over the repetitions.
    Source: nGraph, ``Broadcast``; no counterpart in Marian.
    """
    shape = as_shape(shape)
    return x if node("broadcast_to", x).shape == shape else BroadcastToNodeOp(x, to=shape)


def mask_over(op: str, mask: Node, x: Node) -> Node:
    """The mask of the operator ``op`` on ``x``, which may be smaller even if broadcasting is strict.
    ``ShapeError`` if it does not broadcast to ``x``."""
    if not broadcasts_to(mask.shape, x.shape):
        raise refusal(op, f"a mask of {mask.shape} does not broadcast to {x.shape}", x, mask)
    return broadcast_to(mask, x.shape) if x.tape().strict else mask


class ReplaceSliceNodeOp(NaryNodeOp):
    """Children: x, and the value that is written over a region of x."""

    type = "replaceSlice"
    region: Region
    cases = (
        Case((4, 5), (2, 5), region=((1, 3, 1), (0, 5, 1))),
        Case((4, 5), (3,), region=((0, 4, 3), (0, 5, 2))),
        Case((2, 3, 4), (1, 3, 1), region=((0, 2, 1), (0, 3, 1), (1, 2, 1))),
    )

    def check_types(self, x: Spec, value: Spec) -> None:
        super().check_types(x, value)
        if len(self.region) != len(x.shape) or any(
            part[1] > n for part, n in zip(self.region, x.shape, strict=True)
        ):
            raise ShapeError(f"a region {self.region} does not lie in {x.shape}")
        sizes = [len(range(*part)) for part in self.region]
        if not broadcasts_to(value.shape, sizes):
            raise ShapeError(f"a value of {value.shape} does not fit a region of {tuple(sizes)}")

    def forward_ops(self, x: Array, value: Array) -> Array:
        return x.at[self.places()].set(value)

    def backward_ops(self, adj: Array, val: Array, x: Array, value: Array) -> Gradients:
        return adj.at[self.places()].set(0), adj[self.places()]

    def places(self) -> tuple[slice, ...]:
        """The region as an index."""
        return tuple(slice(*part) for part in self.region)


def replace_slice(x: Node, slices: Slice | int | Sequence[Slice | int], value: Any) -> Node:
    """``x`` with ``value``, a node or a number, written over a region.

    ``slices`` give the region along the first axes, or along the first alone; the region spans all other
    axes. A position is a ``Slice`` of length 1. ``value`` has the region's shape or broadcasts to it.
    ``graph.assign(w[1:3], value)`` does the same to a parameter. ``ShapeError`` if ``value`` does not fit, if
    there are more slices than axes, and for slices as for ``slice``.

    Shape: that of ``x``.
    Gradient: for ``x``: ``adj``, 0 where overwritten. For ``value``: ``adj`` in the region.
    Source: nGraph, ``ReplaceSlice``; no counterpart in Marian.
    """
    sizes = node("replace_slice", x).shape
    given = [
        part if isinstance(part, Slice) else Slice(whole("replace_slice", "a position", part))
        for part in (slices if isinstance(slices, Sequence) else [slices])
    ]
    if len(given) > len(sizes):
        raise refusal("replace_slice", f"{len(given)} slices for {len(sizes)} axes", x)
    given += [Slice()] * (len(sizes) - len(given))
    try:
        region = tuple((*part.bounds(n), part.stride) for part, n in zip(given, sizes, strict=True))
    except ShapeError as e:
        raise refusal("replace_slice", str(e), x) from None
    if is_number(value):
        value = number_as_node("replace_slice", value, x, part=True)
    return ReplaceSliceNodeOp(x, value, region=region)
