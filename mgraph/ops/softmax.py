"""The softmax family and the loss on top of it. Exponentials are summed in float32 or wider."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..cases import Case
from ..errors import ShapeError
from ..node import Node
from ..specs import Specs
from ..types import Type, as_type
from .arithmetic import minus, mult, plus
from .operands import FloatNodeOp, FloatUnaryNodeOp, Gradients, accumulable, axis_in, node


class SoftmaxNodeOp(FloatUnaryNodeOp):
    type = "softmax"
    axis: int
    cases = (Case((2, 3, 4), axis=2), Case((2, 3, 4), axis=0))

    def forward_ops(self, x: Array) -> Array:
        return jax.nn.softmax(accumulable(x), self.axis).astype(x.dtype)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        adj, p = accumulable(adj), accumulable(val)
        return ((p * (adj - jnp.sum(p * adj, self.axis, keepdims=True))).astype(x.dtype),)


def softmax(x: Node, mask: Node | int | None = None, axis: int = -1) -> Node:
    """``p = exp(x) / sum(exp(x))`` along ``axis``; ``softmax(x, axis)`` and ``softmax(x, mask, axis)``.

    ``mask`` broadcasts to ``x`` and holds 1 for what takes part and 0 for what does not: half of the lowest
    number of the element type is added to the latter. Where all is masked the result is near uniform, not
    NaN. Gradient: ``p (adj - sum(p adj))``. Source: Marian, ``softmax``.
    """
    if isinstance(mask, int):
        return softmax(x, axis=mask)
    if mask is not None:
        x = plus(x, mult(minus(1, mask), _lowest(x) / 2))
    return SoftmaxNodeOp(x, axis=axis_in("softmax", x, axis))


def _lowest(x: Node) -> float:
    kind = node("softmax", x).value_type
    return float(jnp.finfo(kind.dtype).min) if kind.is_float else 0.0


class LogSoftmaxNodeOp(FloatUnaryNodeOp):
    type = "logsoftmax"
    cases = (Case((2, 3, 4)),)

    def forward_ops(self, x: Array) -> Array:
        return jax.nn.log_softmax(accumulable(x), -1).astype(x.dtype)

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        adj, p = accumulable(adj), jnp.exp(accumulable(val))
        return ((adj - p * jnp.sum(adj, -1, keepdims=True)).astype(x.dtype),)


def logsoftmax(x: Node) -> Node:
    """``x - log(sum(exp(x)))`` along the last axis. Gradient: ``adj - p sum(adj)`` with ``p = exp(y)``.

    Source: Marian, ``logsoftmax``.
    """
    return LogSoftmaxNodeOp(x)


class CrossEntropyNodeOp(FloatNodeOp):
    type = "x-ent"
    index_children = (1,)
    alpha: float
    to: Type | None = None
    """Element type of the loss; ``None``: float32, or wider logits' own."""
    cases = (
        Case((2, 3, 7), (6,), domain=("real", "index:7"), alpha=0.0),
        Case((2, 3, 7), (6,), domain=("real", "index:7"), alpha=0.1),
    )

    def new_spec(self, logits: Any, indices: Any) -> Specs:
        rows, labels = math.prod(logits.shape[:-1]), math.prod(indices.shape)
        if not logits.shape or rows != labels:
            raise ShapeError(f"expected one label per row of the logits, got {labels} for {rows} rows")
        return super().new_spec(logits, indices)

    def forward_ops(self, logits: Array, indices: Array) -> Array:
        x = logits.astype(self._inner(logits))
        labels = indices.reshape(*x.shape[:-1], 1)
        top, _, total = _exponentials(x)
        lse = top + jnp.log(total)
        gold = jnp.take_along_axis(x, labels, -1, mode="fill")
        loss = (1 - self.alpha) * (lse - gold)
        if self.alpha:
            loss = loss + self.alpha * (lse - jnp.mean(x, -1, keepdims=True))
        return loss if self.to is None else loss.astype(self.to.dtype)

    def backward_ops(self, adj: Array, val: Array, logits: Array, indices: Array) -> Gradients:
        x = logits.astype(self._inner(logits))
        labels = indices.reshape(*x.shape[:-1], 1)
        _, powers, total = _exponentials(x)
        gold = jnp.arange(x.shape[-1], dtype=labels.dtype) == labels
        adj = adj.astype(x.dtype)
        target = jnp.where(gold, adj * (1 - self.alpha), 0) + adj * (self.alpha / x.shape[-1])
        gradient = powers * (adj / total) - target
        return gradient.astype(logits.dtype), None

    def _inner(self, logits: Array) -> Any:
        return jnp.promote_types(logits.dtype, self.to.dtype if self.to else jnp.float32)


def _exponentials(x: Array) -> tuple[Array, Array, Array]:
    """The largest element of each row, ``exp(x - largest)`` and its sum.

    Both rules ask for them in these words, so that XLA computes them once.
    """
    top = jax.lax.stop_gradient(jnp.max(x, -1, keepdims=True))
    top = jnp.where(jnp.isfinite(top), top, 0)
    powers = jnp.exp(x - top)
    return top, powers, jnp.sum(powers, -1, keepdims=True)


def cross_entropy(logits: Node, indices: Node, label_smoothing: float = 0.0, output_type: Any = None) -> Node:
    """The loss of predicting ``indices`` from ``logits``, one number per row.

    ``loss = (1 - alpha) (lse - x_gold) + alpha (lse - mean(x))`` with ``lse = log(sum(exp(x)))`` over the
    V classes and ``alpha = label_smoothing``, so that smoothing includes the gold class.

    ``logits``: (..., V); ``indices``: integers, as many as rows, in the order of the rows; result: (..., 1)
    in ``output_type``: float32, also for 16-bit logits (float64 for float64 ones). A class outside of V
    gives NaN. ``ShapeError`` if rows and indices differ in number. Gradient by the logits:
    ``p - (1 - alpha) onehot - alpha / V``.
    Source: Szegedy et al. 2016; Marian, ``cross_entropy``.
    """
    to = None if output_type is None else as_type(output_type)
    return CrossEntropyNodeOp(logits, indices, alpha=float(label_smoothing), to=to)
