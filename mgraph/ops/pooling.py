"""Pooling: the mean or the largest element of each window."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import flag
from ..cases import Case, Convention
from ..errors import ArgumentError, ShapeError
from ..node import Node
from ..rules import derivative
from ..specs import Spec, Specs
from .operands import FloatNodeOp, Gradients, accumulable, node, unless_nan
from .windows import WindowNodeOp, spatial, whole_numbers


class PoolingOp(WindowNodeOp):
    type = "layer_pooling"
    color = "yellow"
    height: int
    width: int
    mode: str
    cases = (
        Case((2, 3, 5, 4), height=2, width=3, mode="avg"),
        Case((1, 2, 7, 5), height=3, width=2, mode="avg", pad_height=1, pad_width=1, stride_height=3),
        Case((2, 3, 5, 4), domain="distinct", height=2, width=3, mode="max"),
        Case((1, 2, 7, 5), domain="distinct", height=3, width=2, mode="max",
             pad_height=2, pad_width=1, stride_height=2, stride_width=3),
    )  # fmt: skip
    conventions = tuple(
        Convention([[[row]]], gradients=([[[gradient]]],), height=1, width=3, mode="max")
        for row, gradient in (
            ([1.0, 1.0, 0.0], [1, 0, 0]),
            ([0.0, math.nan, 1.0], [0, math.nan, 0]),
            ([math.nan, 1.0, math.nan], [math.nan, 0, 0]),
            ([-math.inf] * 3, [1, 0, 0]),
        )
    )

    @property
    def window(self) -> tuple[int, int]:
        return self.height, self.width

    def new_spec(self, x: Spec) -> Specs:
        self.check_windows(x, self.window)
        if self.pad_height >= self.height or self.pad_width >= self.width:
            raise ArgumentError(
                f"expected paddings smaller than the window {self.window}, or some windows would hold "
                f"only padding, got {(self.pad_height, self.pad_width)}"
            )
        return super().new_spec(x)

    def forward_ops(self, x: Array) -> Array:
        if self.mode == "avg":
            total = self._over_windows(accumulable(x), 0.0, jax.lax.add)
            return (total / math.prod(self.window)).astype(x.dtype)
        return self._over_windows(x, -jnp.inf, jax.lax.max)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        adj = accumulable(adj)
        if self.mode == "avg":
            return (self._spread(adj, x).astype(x.dtype),)
        return (self._to_largest(unless_nan(accumulable(val), adj), x).astype(x.dtype),)

    def _spread(self, adj: Array, x: Array) -> Array:
        """For each element, its share of the adjoints of all windows that contain it."""
        pads = self.pads_back(x, self.window, adj)
        inner = [(*pad, stride - 1) for pad, stride in zip(pads, self.strides, strict=True)]
        apart = jax.lax.pad(adj, jnp.zeros((), adj.dtype), [(0, 0, 0), (0, 0, 0), *inner])
        sums = jax.lax.reduce_window(apart, 0.0, jax.lax.add, (1, 1, *self.window), (1,) * 4, "VALID")
        return sums / math.prod(self.window)

    def _to_largest(self, adj: Array, x: Array) -> Array:
        """The adjoint of each window, added up at its largest element, the first if several are equal."""
        images, size = math.prod(x.shape[:2]), math.prod(spatial(x))
        windows = math.prod(spatial(adj))
        places = self._places_of_largest(jax.lax.stop_gradient(x)).reshape(images, windows)
        dx = jnp.zeros((images, size), adj.dtype)
        dx = dx.at[jnp.arange(images)[:, None], places].add(adj.reshape(places.shape))
        return dx.reshape(x.shape)

    def _places_of_largest(self, x: Array) -> Array:
        """Position in the image, row by row, of each window's largest element."""
        size = math.prod(spatial(x))
        places = jnp.arange(size, dtype=jnp.int32).reshape(spatial(x))

        def larger(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
            nan = jnp.isnan(a[0]), jnp.isnan(b[0])
            tied = (a[0] == b[0]) | (nan[0] & nan[1])
            first = (a[0] > b[0]) | (nan[0] & ~nan[1]) | (tied & (a[1] < b[1]))
            return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

        numbered = x, jnp.broadcast_to(places, x.shape)
        initial = jnp.array(-jnp.inf, x.dtype), jnp.array(size, jnp.int32)
        _, found = self._over_windows(numbered, initial, larger)
        return found

    def _over_windows(self, x: Any, initial: Any, combine: Callable[..., Any]) -> Any:
        """The elements of each window of ``x``, combined."""
        window, strides = (1, 1, *self.window), (1, 1, *self.strides)
        return jax.lax.reduce_window(x, initial, combine, window, strides, [(0, 0), (0, 0), *self.pads])


def avg_pooling(
    x: Node,
    height: int,
    width: int,
    pad_height: int = 0,
    pad_width: int = 0,
    stride_height: int = 1,
    stride_width: int = 1,
) -> Node:
    """The mean of each window of ``height`` and ``width``, a stride apart, including padding, which is zeros.

    ``x``: (batch, channels, height, width), padded at both ends of an axis. ``ShapeError`` if the window does
    not fit into x, ``ArgumentError`` if a padding is as large as the window or negative, or if the window or
    a stride is below 1.

    Shape: (batch, channels, h, w) with ``h = (x's height + 2 pad_height - height) // stride_height + 1``,
    likewise w.
    Gradient: ``adj / (height width)``, summed over the windows that contain an element.
    Differs: Marian gives the result x's shape, which is right only if there are as many windows as elements.
    Source: Marian, ``avg_pooling``, in builds with cuDNN.
    """
    return _pool("avg", x, height, width, pad_height, pad_width, stride_height, stride_width)


def max_pooling(
    x: Node,
    height: int,
    width: int,
    pad_height: int = 0,
    pad_width: int = 0,
    stride_height: int = 1,
    stride_width: int = 1,
) -> Node:
    """The largest element of each window of ``height`` and ``width``; padding is never the largest.

    Arguments and errors are as for ``avg_pooling``.

    Shape: (batch, channels, h, w) with ``h = (x's height + 2 pad_height - height) // stride_height + 1``,
    likewise w.
    Gradient: ``adj`` for the largest element, the first of equal ones, row by row.
    Differs: Marian gives the result x's shape, which is right only if there are as many windows as elements.
    Source: Marian, ``max_pooling``, in builds with cuDNN.
    """
    return _pool("max", x, height, width, pad_height, pad_width, stride_height, stride_width)


def _pool(mode: str, x: Node, *sizes: int) -> Node:
    op = f"{mode}_pooling"
    names = ("height", "width", "pad_height", "pad_width", "stride_height", "stride_width")
    return PoolingOp(node(op, x), mode=mode, **whole_numbers(op, **dict(zip(names, sizes, strict=True))))


class PoolingWithMaskingOp(FloatNodeOp):
    type = "layer_pooling"
    color = "yellow"
    width: int
    is_even: bool = False
    cases = (
        Case((2, 3, 7), (2, 1, 7), domain=("distinct", "positive"), width=3),
        Case((2, 3, 7, 1), (2, 1, 6, 1), domain=("distinct", "positive"), width=4, is_even=True),
    )
    conventions = (
        Convention(
            [[[math.nan, 1.0]]],
            [[[1.0, 1.0]]],
            gradients=([[[math.nan, 0]]], [[[math.nan, 0]]]),
            width=2,
        ),
    )

    def new_spec(self, x: Spec, mask: Spec) -> Specs:
        if self.width < 1:
            raise ArgumentError(f"expected windows of at least 1 element, got {self.width}")
        for name, spec in (("x", x), ("the mask", mask)):
            if len(spec.shape) not in (3, 4) or spec.shape[3:] not in ((), (1,)):
                raise ShapeError(f"expected {name} as (batch, channels, time), got {spec.shape}")
        batch, _, time = x.shape[:3]
        if mask.shape[:3] != (batch, 1, time - self.is_even):
            raise ShapeError(f"expected a mask of {(batch, 1, time - self.is_even)}, got {mask.shape}")
        return super().new_spec(x, mask)

    def forward_ops(self, x: Array, mask: Array) -> Array:
        return jnp.max(self._windows(x, mask), -1)

    def backward_ops(self, adj: Array, val: Array, x: Array, mask: Array) -> Gradients:
        d = self._to_largest(unless_nan(val, adj), x, mask)
        dx = self._whole(d * _sentences(mask), x)
        d_mask = jnp.sum(d * _sentences(x)[..., : d.shape[-1]], 1, keepdims=True)
        return dx, d_mask.reshape(mask.shape)

    def _windows(self, x: Array, mask: Array) -> Array:
        """The masked elements, (batch, channels, windows, width); the last window is padded with -inf."""
        masked = _sentences(x)[..., : mask.shape[2]] * _sentences(mask)
        lacking = -masked.shape[-1] % self.width
        full = jnp.pad(masked, [(0, 0), (0, 0), (0, lacking)], constant_values=-jnp.inf)
        return full.reshape(*full.shape[:2], -1, self.width)

    def _to_largest(self, adj: Array, x: Array, mask: Array) -> Array:
        """The adjoint of the masked elements: at the largest of each window, the first of equal ones."""
        windows = self._windows(x, mask)
        largest = jnp.argmax(windows, -1, keepdims=True) == jnp.arange(self.width)
        spread = jnp.where(largest, adj[..., None], 0)
        return spread.reshape(*spread.shape[:2], -1)[..., : mask.shape[2]]

    def _whole(self, dx: Array, x: Array) -> Array:
        """``dx`` in x's shape, with a zero for the column that an even kernel adds."""
        return jnp.pad(dx, [(0, 0), (0, 0), (0, int(self.is_even))]).reshape(x.shape)


@derivative(PoolingWithMaskingOp, "marian")
def _(self: PoolingWithMaskingOp, adj: Array, val: Array, x: Array, mask: Array) -> Gradients:
    _, d_mask = self.backward_ops(adj, val, x, mask)
    return self._whole(self._to_largest(adj, x, mask), x), d_mask


def _sentences(x: Array) -> Array:
    """(batch, channels, time), without a last axis of size 1."""
    return x.reshape(x.shape[:3])


def pooling_with_masking(x: Node, mask: Node, width: int, is_even: bool = False) -> Node:
    """The largest element of ``x * mask`` in each window of ``width`` steps; the last may be shorter.

    ``x``: (batch, channels, time), or (batch, channels, time, 1) as ``convolution`` gives it; ``mask``:
    (batch, 1, time), or with a last axis of size 1. ``is_even`` is for kernels of even size, after which x
    has one step more than the mask; that step is left out. ``ShapeError`` if the mask does not fit,
    ``ArgumentError`` for a ``width`` below 1.

    Shape: (batch, channels, windows) with ``windows = ceil(time / width)``, time that of the mask.
    Gradient: for x, ``adj mask`` at the largest element, the first of equal ones; for the mask, ``adj x``
    there, summed over channels.
    Differs: Marian's gradient at a masked element that is the largest is ``adj``, not 0; the rule set
    ``"marian"`` repeats it. Marian orders the elements as (windows, batch, channels) whatever the shape says:
    in place of its reshape to that order use ``transpose(y, (2, 0, 1))``.
    Source: Marian, ``pooling_with_masking``, on GPU only.
    """
    children = [node("pooling_with_masking", child) for child in (x, mask)]
    return PoolingWithMaskingOp(
        *children,
        is_even=flag("pooling_with_masking", "is_even", is_even),
        **whole_numbers("pooling_with_masking", width=width),
    )
