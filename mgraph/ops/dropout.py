"""Dropout: products with random masks, alone or fused with a relu."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from ..cases import Case, Convention
from ..errors import ArgumentError
from ..node import Node
from ..shape import Shape
from .arithmetic import MultNodeOp
from .operands import FloatNodeOp, Gradients, axes_in, is_number, node, unless_nan
from .product import affine
from .regions import mask_over


def mask_for(
    op: str, x: Node, p: float | Node | None, shape: Shape | None, axes: Sequence[int] | None
) -> Node | None:
    """``p`` if it is a mask, else a new mask with the probability ``p``; ``None`` if nothing is dropped."""
    if p is None or isinstance(p, Node):
        return p
    if not is_number(p) or not 0 <= p < 1:
        raise ArgumentError(f"{op} expects a probability 0 <= p < 1 or a mask, got {p!r}")
    if p == 0:
        return None
    if shape is None:
        kept = range(len(x.shape)) if axes is None else axes_in(op, x, axes)
        shape = tuple(n if i in kept else 1 for i, n in enumerate(x.shape))
    return x.graph.dropout_mask(p, shape, x.value_type)


def dropout(
    x: Node, p: float | Node | None, shape: Shape | None = None, *, axes: Sequence[int] | None = None
) -> Node:
    """``x * mask`` with a random mask: 0 with probability ``p``, else ``1 / (1 - p)``.

    ``p`` may be a mask itself, a node that broadcasts to ``x``. The mask has ``x``'s shape, or ``shape``, or
    ``x``'s sizes along ``axes`` and 1 elsewhere, and broadcasts to ``x``. ``p = 0`` or no mask returns ``x``.
    Each call makes a new mask, which is drawn at each run, also in inference graphs; layers ask for no mask
    there. ``ArgumentError`` for an invalid probability, ``ShapeError`` for a mask that does not broadcast to
    ``x``.

    Shape: that of ``x``.
    Gradient: ``adj mask``.
    Source: Srivastava et al. 2014; Marian, ``dropout``.
    """
    mask = mask_for("dropout", node("dropout", x), p, shape, axes)
    return x if mask is None else MultNodeOp(x, mask_over("dropout", mask, x))


class DropoutReluInplaceNodeOp(FloatNodeOp):
    """``relu(x)``, or ``relu(x * mask)`` with a second child."""

    type = "dropoutReluInplace"
    color = "grey"
    cases = (
        Case((2, 3), domain="distinct"),
        Case((2, 3), (2, 3), domain=("distinct", "positive")),
        Case((2, 3, 4), (3, 1), domain=("distinct", "positive")),
    )
    conventions = (
        Convention([0.0, math.nan], gradients=([0, math.nan],)),
        Convention([0.0, 1.0, math.nan], [1.0, 0.0, 1.0], gradients=([0, 0, math.nan], [0, 0, math.nan])),
    )

    def forward_ops(self, x: Array, *mask: Array) -> Array:
        return jnp.maximum(x * mask[0] if mask else x, 0)

    def backward_ops(self, adj: Array, val: Array, x: Array, *mask: Array) -> Gradients:
        adj = unless_nan(val, jnp.where(val > 0, adj, 0))
        return (adj * mask[0], adj * x) if mask else (adj,)


def dropout_relu_inplace(
    x: Node, p: float | Node | None = None, shape: Shape | None = None, *, axes: Sequence[int] | None = None
) -> Node:
    """``relu(x * mask)`` with a mask as for ``dropout``; without one, or with ``p = 0``, ``relu(x)``.

    Errors as for ``dropout``.

    Shape: that of ``x``.
    Gradient: ``adj mask`` where ``y > 0``, else 0, also at 0.
    Differs: Nothing is overwritten; Marian writes the result over the value of ``x``, which every other user
    of ``x`` then sees, and likewise the gradient.
    Source: Marian, ``dropoutReluInplace``.
    """
    op = "dropout_relu_inplace"
    mask = mask_for(op, node(op, x), p, shape, axes)
    return DropoutReluInplaceNodeOp(*((x,) if mask is None else (x, mask_over(op, mask, x))))


def affine_with_relu_dropout(x: Node, W: Node, b: Node, p: float = 0.0) -> Node:
    """``relu(affine(x, W, b) * mask)``; the mask has the last two axes and is shared along the others.

    Errors as for ``affine`` and ``dropout``.

    Shape: (..., k), (k, n) and (1, n) to (..., n).
    Gradient: that of its parts.
    Differs: In inference on GPU Marian ignores ``p``; here, as in Marian on CPU, it is applied.
    Source: Marian, ``affineWithReluDropout``.
    """
    y = affine(x, W, b)
    return dropout_relu_inplace(y, p, axes=range(-min(2, len(y.shape)), 0))
