"""Operators that move elements; their gradients move them back."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import allocating, whole
from ..cases import Case, Convention
from ..errors import ShapeError
from ..node import NaryNodeOp, Node, UnaryNodeOp
from ..shape import Shape, Slice, as_shape, as_sizes
from ..specs import Spec, Specs
from .operands import Gradients, axis_in, node, nodes_in, number_for, refusal, scalar, wholes


class ReshapeNodeOp(UnaryNodeOp):
    type = "reshape"
    color = "grey"
    to: Shape
    cases = (Case((2, 3, 5), to=(3, 10)), Case((2, 3), to=(6,)))

    def new_spec(self, x: Spec) -> Specs:
        if math.prod(self.to) != math.prod(x.shape):
            raise ShapeError(
                f"a shape {self.to} holds {math.prod(self.to)} elements, the child has {math.prod(x.shape)}"
            )
        return super().new_spec(x)

    def forward_ops(self, x: Array) -> Array:
        return x.reshape(self.to)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj.reshape(x.shape),)


def reshape(x: Node, shape: Shape) -> Node:
    """The elements of ``x``, row-major, in another shape; ``x`` itself if it has that shape.

    One size may be -1; it follows from the others. ``ShapeError`` if the numbers of elements differ, or if
    the size for -1 is not a whole number or, with another size of 0, not known.

    Shape: ``shape``.
    Gradient: ``adj`` in the shape of ``x``.
    Source: Marian, ``reshape``.
    """
    to = as_shape(_completed(node("reshape", x), as_sizes(shape)))
    return x if x.shape == to else ReshapeNodeOp(x, to=to)


def _completed(x: Node, sizes: Shape) -> Shape:
    """The sizes, with the size that follows from the others in place of a -1."""
    if -1 not in sizes:
        return sizes
    rest = math.prod(n for n in sizes if n != -1)
    count = math.prod(x.shape)
    if sizes.count(-1) > 1 or not rest or count % rest:
        raise refusal("reshape", f"no size in place of -1 makes {sizes} hold {count} elements", x)
    return tuple(count // rest if n == -1 else n for n in sizes)


def flatten(x: Node) -> Node:
    """All elements along one axis, row-major.

    Shape: (n,) with all n elements.
    Gradient: ``adj`` in the shape of ``x``.
    Source: Marian, ``flatten``.
    """
    return ReshapeNodeOp(x, to=(math.prod(node("flatten", x).shape),))


def flatten_2d(x: Node) -> Node:
    """A matrix of ``x``'s rows.

    Shape: (..., d) to (rows, d).
    Gradient: ``adj`` in the shape of ``x``.
    Source: Marian, ``flatten_2d``.
    """
    shape = node("flatten_2d", x).shape
    return ReshapeNodeOp(x, to=(math.prod(shape[:-1]), *shape[-1:]))


def atleast_nd(x: Node, n: int) -> Node:
    """``x`` with axes of size 1 put in front until there are ``n``; ``x`` itself if it has that many.

    Shape: (1, ..., 1, ...) with at least ``n`` axes.
    Gradient: ``adj`` in the shape of ``x``.
    Source: Marian, ``atleast_nd``.
    """
    shape = node("atleast_nd", x).shape
    return reshape(x, (1,) * (whole("atleast_nd", "n", n) - len(shape)) + shape)


def atleast_1d(x: Node) -> Node:
    """``atleast_nd(x, 1)``.

    Shape: that of ``x``, with ones in front up to one axis.
    Gradient: ``adj`` in the shape of ``x``.
    Source: Marian, ``atleast_1d``.
    """
    return atleast_nd(x, 1)


def atleast_2d(x: Node) -> Node:
    """``atleast_nd(x, 2)``.

    Shape: that of ``x``, with ones in front up to two axes.
    Gradient: ``adj`` in the shape of ``x``.
    Source: Marian, ``atleast_2d``.
    """
    return atleast_nd(x, 2)


def atleast_3d(x: Node) -> Node:
    """``atleast_nd(x, 3)``.

    Shape: that of ``x``, with ones in front up to three axes.
    Gradient: ``adj`` in the shape of ``x``.
    Source: Marian, ``atleast_3d``.
    """
    return atleast_nd(x, 3)


def atleast_4d(x: Node) -> Node:
    """``atleast_nd(x, 4)``.

    Shape: that of ``x``, with ones in front up to four axes.
    Gradient: ``adj`` in the shape of ``x``.
    Source: Marian, ``atleast_4d``.
    """
    return atleast_nd(x, 4)


class TransposeNodeOp(UnaryNodeOp):
    type = "transpose"
    color = "orange"
    axes: tuple[int, ...]
    cases = (Case((2, 3, 4), axes=(2, 0, 1)), Case((2, 3, 4, 2), axes=(0, 2, 1, 3)))

    def new_spec(self, x: Spec) -> Specs:
        if sorted(self.axes) != list(range(len(x.shape))):
            raise ShapeError(f"axes {self.axes} are not a permutation of the child's {len(x.shape)} axes")
        return super().new_spec(x)

    def forward_ops(self, x: Array) -> Array:
        return jnp.transpose(x, self.axes)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        back = sorted(range(x.ndim), key=self.axes.__getitem__)
        return (jnp.transpose(adj, back),)


def transpose(x: Node, axes: Sequence[int] | None = None) -> Node:
    """``x`` with its axes in another order: axis i of the result is ``x``'s axis ``axes[i]``.

    Without ``axes`` the last two are swapped. ``ShapeError`` if ``axes`` does not name each axis once.

    Shape: that of ``x`` in the new order: (..., m, n) to (..., n, m).
    Gradient: ``adj`` with its axes back in the old order.
    Source: Marian, ``transpose``.
    """
    order = list(range(len(node("transpose", x).shape)))
    if axes is None:
        order[-2:] = reversed(order[-2:])
    else:
        order = [axis_in("transpose", x, a) for a in wholes("transpose", "axes", axes)]
    return TransposeNodeOp(x, axes=tuple(order))


def swap_axes(x: Node, axis1: int, axis2: int) -> Node:
    """``x`` with two axes swapped; ``x`` itself if they are the same.

    A reshape if no element moves: if one of the two axes and all axes between them have size 1.

    Shape: that of ``x`` with the two sizes swapped.
    Gradient: ``adj`` with the two axes swapped.
    Source: Marian, ``swapAxes``.
    """
    first, last = sorted((axis_in("swap_axes", x, axis1), axis_in("swap_axes", x, axis2)))
    if first == last:
        return x
    axes = list(range(len(x.shape)))
    axes[first], axes[last] = last, first
    between = x.shape[first + 1 : last]
    if 1 in (x.shape[first], x.shape[last]) and all(n == 1 for n in between):
        return reshape(x, tuple(x.shape[a] for a in axes))
    return TransposeNodeOp(x, axes=tuple(axes))


class ConcatenateNodeOp(NaryNodeOp):
    type = "concat"
    axis: int
    cases = (Case((2, 5), (3, 5), axis=0), Case((2, 3, 4), (2, 3, 1), (2, 3, 2), axis=2))

    def new_spec(self, *xs: Spec) -> Specs:
        rests = {x.shape[: self.axis] + x.shape[self.axis + 1 :] for x in xs}
        if len({len(x.shape) for x in xs}) != 1 or len(rests) != 1:
            raise ShapeError(f"children may differ in size along axis {self.axis} only")
        return super().new_spec(*xs)

    def forward_ops(self, *xs: Array) -> Array:
        return jnp.concatenate(xs, self.axis)

    def backward_ops(self, adj: Array, val: Array, *xs: Array) -> Gradients:
        return tuple(jax.lax.split(adj, [x.shape[self.axis] for x in xs], self.axis))


def concatenate(nodes: Sequence[Node], axis: int = 0) -> Node:
    """The nodes concatenated along ``axis``; a single node is returned itself.

    ``ShapeError`` if their other axes differ.

    Shape: that of the nodes, with the sum of their sizes along ``axis``.
    Gradient: ``adj`` cut into the nodes' parts.
    Source: Marian, ``concatenate``.
    """
    given = nodes_in("concatenate", nodes)
    if len(given) == 1:
        return node("concatenate", given[0])
    return ConcatenateNodeOp(*given, axis=axis_in("concatenate", given[0], axis) if given else axis)


def repeat(x: Node, repeats: int, axis: int = 0) -> Node:
    """``repeats`` copies of ``x``, one after the other along ``axis`` (a b a b); one copy is ``x`` itself.

    ``ShapeError`` for fewer than one copy, and for more than memory holds.

    Shape: that of ``x``, ``repeats`` times as long along ``axis``.
    Gradient: ``adj`` summed over the copies.
    Source: Marian, ``repeat``.
    """
    repeats, x = whole("repeat", "repeats", repeats), node("repeat", x)
    if repeats < 1:
        raise refusal("repeat", f"expected at least one copy, got {repeats}", x)
    if repeats == 1:
        return x
    axis = axis_in("repeat", x, axis)
    with allocating("repeat", x.shape.with_dim(axis, repeats * x.shape[axis]), x.value_type):
        return concatenate([x] * repeats, axis)


class SliceViewNodeOp(UnaryNodeOp):
    type = "sliceView"
    color = "grey"
    axis: int
    begin: int
    end: int
    stride: int = 1
    cases = (
        Case((4, 5), axis=0, begin=1, end=3),
        Case((2, 5), axis=1, begin=0, end=5, stride=2),
        Case((2, 6), axis=1, begin=1, end=5, stride=2),
    )
    conventions = (Convention([1.0, 2.0], gradients=([0, 0],), axis=0, begin=1, end=1),)

    def forward_ops(self, x: Array) -> Array:
        return jax.lax.slice_in_dim(x, self.begin, self.end, self.stride, self.axis)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        if not adj.size:
            return (jnp.zeros_like(x),)
        last = self.begin + (adj.shape[self.axis] - 1) * self.stride
        pad = [(0, 0, 0)] * x.ndim
        pad[self.axis] = (self.begin, x.shape[self.axis] - 1 - last, self.stride - 1)
        return (jax.lax.pad(adj, jnp.zeros((), adj.dtype), pad),)


def slice(x: Node, axis: int, range: Slice | int) -> Node:
    """The part of ``x`` in a ``Slice`` of ``axis``, or at one position; the axis stays, with size 1.

    Negative positions count from the end. The whole axis is ``x`` itself. ``ShapeError`` if nothing is
    selected, for positions outside the axis, and for a negative stride.

    Shape: that of ``x``, with the length of the slice along ``axis``.
    Gradient: ``adj`` in the slice, 0 outside.
    Differs: Marian's node is a ``gather`` where the slice is not contiguous.
    Source: Marian, ``slice``.
    """
    axis = axis_in("slice", x, axis)
    chosen = range if isinstance(range, Slice) else Slice(whole("slice", "range", range))
    size = x.shape[axis]
    try:
        begin, end = chosen.bounds(size)
    except ShapeError as e:
        raise refusal("slice", str(e), x) from None
    if (begin, end, chosen.stride) == (0, size, 1):
        return x
    return SliceViewNodeOp(x, axis=axis, begin=begin, end=end, stride=chosen.stride)


def narrow(x: Node, axis: int, start: int, length: int) -> Node:
    """``length`` positions of ``axis`` from ``start`` on: ``slice(x, axis, Slice(start, start + length))``.

    Errors as for ``slice``.

    Shape: that of ``x`` with size ``length`` along ``axis``.
    Gradient: ``adj`` in the slice, 0 outside.
    Source: Marian, ``narrow``.
    """
    start, length = whole("narrow", "start", start), whole("narrow", "length", length)
    return slice(x, axis, Slice(start, start + length))


class ShiftNodeOp(UnaryNodeOp):
    type = "shift"
    offsets: tuple[int, ...]
    pad: float = 0.0
    runtime_fields = ("pad",)
    cases = (
        Case((4, 5), offsets=(1, 0), pad=0.0),
        Case((4, 2, 3), offsets=(-1, 1, 0), pad=9.0),
        Case((2, 3), offsets=(0, -4), pad=1.0),
    )

    def new_spec(self, x: Spec) -> Specs:
        if len(self.offsets) != len(x.shape):
            raise ShapeError(f"expected one offset per axis, got {self.offsets}")
        return super().new_spec(x)

    def forward_ops(self, x: Array) -> Array:
        return _shifted(x, self.offsets, self.pad)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (_shifted(adj, tuple(-n for n in self.offsets), 0.0),)


def _shifted(x: Array, offsets: tuple[int, ...], fill: float) -> Array:
    clipped = [max(-n, min(n, by)) for n, by in zip(x.shape, offsets, strict=True)]
    return jax.lax.pad(x, jnp.asarray(scalar(fill, x), x.dtype), [(by, -by, 0) for by in clipped])


def shift(x: Node, offsets: Sequence[int], pad: float = 0.0) -> Node:
    """``x`` with its elements moved along each axis, towards the end by a positive offset. ``pad`` fills the
    gaps; elements moved out are lost. ``ShapeError`` unless there is one offset per axis;
    ``ElementTypeError`` for a ``pad`` that an integer type cannot hold.

    Shape: that of ``x``.
    Gradient: ``adj`` moved back, 0 where elements were lost.
    Differs: Marian moves the memory by one sum of all offsets, which is right along the first axis only.
    Source: Marian, ``shift``.
    """
    fill = number_for("shift", x, pad)
    return ShiftNodeOp(x, offsets=wholes("shift", "offsets", offsets), pad=fill)
