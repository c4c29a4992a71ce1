"""The softmax family and the losses on top of it. Exponentials are summed in float32 or wider."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..arrays import real
from ..cases import Case, Convention
from ..errors import ArgumentError, ElementTypeError, ShapeError
from ..node import Node
from ..places import here
from ..shape import Shape
from ..specs import Specs
from ..types import Type, TypeName, as_type
from .arithmetic import minus, mult, plus
from .operands import (
    FloatNodeOp,
    FloatUnaryNodeOp,
    Gradients,
    accumulable,
    as_positions,
    axis_in,
    known,
    node,
    unless_nan,
)
from .precision import in_float32, widened, within
from .reduce import divisor, exponentials, largest
from .regions import mask_over
from .structure import cast


class SoftmaxNodeOp(FloatUnaryNodeOp):
    type = "softmax"
    axis: int
    cases = (Case((2, 3, 4), axis=2), Case((2, 3, 4), axis=0))
    conventions = (Convention([-math.inf, -math.inf], axis=0, gradients=([0, 0],)),)

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        _, powers, total = exponentials(x, self.axis)
        return powers / total

    @in_float32
    def backward_ops(self, adj: Array, p: Array, x: Array) -> Gradients:
        # The sum of p differs from 1 by a rounding error, which may be all of 1 - p where p is nearly 1.
        total = divisor(jnp.sum(p, self.axis, keepdims=True))
        return (p * (adj - jnp.sum(p * adj, self.axis, keepdims=True) / total),)


def softmax(x: Node, mask: Node | int | None = None, axis: int = -1) -> Node:
    """``p = exp(x) / sum(exp(x))`` along ``axis``; ``softmax(x, axis)`` and ``softmax(x, mask, axis)``.

    ``mask`` broadcasts to ``x`` and holds 1 to keep an element and 0 to mask it: half of the lowest number of
    the element type (of float32, for 16-bit types) is added to masked elements. Where all elements are masked
    the result is nearly uniform, not NaN; a row of -inf gives zeros. ``ShapeError`` for a mask that does not
    broadcast to ``x``, ``ElementTypeError`` for a mask of another element type.

    Shape: that of ``x``.
    Gradient: ``p (adj - sum(p adj))``.
    Differs: Marian adds half of the lowest 16-bit number for 16-bit logits, which large logits outweigh.
    Source: Marian, ``softmax``.
    """
    if isinstance(mask, int):
        return softmax(x, axis=mask)
    axis = axis_in("softmax", x, axis)
    if mask is None:
        return SoftmaxNodeOp(x, axis=axis)
    wide, flags = widened(x, _fitting(node("softmax", mask), x))
    masked = plus(wide, mult(minus(1, flags), _lowest(wide) / 2))
    return cast(SoftmaxNodeOp(masked, axis=axis), x.value_type)


def _fitting(mask: Node, x: Node) -> Node:
    """The mask as an operand for ``x``; ``ElementTypeError`` or ``ShapeError`` if it does not fit."""
    if mask.value_type is not x.value_type:
        raise ElementTypeError(
            f"softmax: node and mask differ in element type, {x.value_type} and {mask.value_type}; "
            f'cast(mask, "{x.value_type}"){here()}'
        )
    return mask_over("softmax", mask, x)


def _lowest(x: Node) -> float:
    return float(jnp.finfo(x.value_type.dtype).min) if x.value_type.is_float else 0.0


class LogSoftmaxNodeOp(FloatUnaryNodeOp):
    type = "logsoftmax"
    cases = (Case((2, 3, 4)),)

    def forward_ops(self, x: Array) -> Array:
        distance, _, total = exponentials(accumulable(x), -1)
        return within(distance - jnp.log(total), x.dtype)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        _, powers, total = exponentials(x, -1)
        return (adj - powers * (jnp.sum(adj, -1, keepdims=True) / total),)


def logsoftmax(x: Node) -> Node:
    """``x - log(sum(exp(x)))`` along the last axis; in float16 clipped to its lowest number.

    Shape: that of ``x``.
    Gradient: ``adj - softmax(x) sum(adj)``.
    Source: Marian, ``logsoftmax``.
    """
    return LogSoftmaxNodeOp(x)


class SparsemaxNodeOp(FloatUnaryNodeOp):
    type = "sparsemax"
    axis: int
    # No element is near the edge of the support, where there is a kink.
    cases = (Case((2, 3, 4), axis=2), Case((3, 2, 4), axis=0), Case((7,), axis=0))
    conventions = (Convention([math.nan, 0.0], axis=0, gradients=([math.nan, math.nan],)),)

    @in_float32
    def forward_ops(self, x: Array) -> Array:
        axis = self.axis
        # Elements that are 1 or more below the largest are never in the support.
        z = jnp.maximum(x - largest(x, axis), -2)
        falling = -jnp.sort(-z, axis)
        places = jnp.arange(1, x.shape[axis] + 1, dtype=x.dtype)
        places = places.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        taken = 1 + places * falling > jnp.cumsum(falling, axis)
        count = jnp.sum(taken, axis, x.dtype, keepdims=True)
        threshold = (jnp.sum(jnp.where(taken, falling, 0), axis, keepdims=True) - 1) / count
        return jnp.where(x == -jnp.inf, 0, jnp.maximum(z - threshold, 0))

    @in_float32
    def backward_ops(self, adj: Array, y: Array, x: Array) -> Gradients:
        support = ~(y <= 0)  # the whole row, if it has a NaN
        count = jnp.maximum(jnp.sum(support, self.axis, adj.dtype, keepdims=True), 1)
        mean = jnp.sum(jnp.where(support, adj, 0), self.axis, keepdims=True) / count
        return (unless_nan(y, jnp.where(support, adj - mean, 0)),)


def sparsemax(x: Node, axis: int = -1) -> Node:
    """The point of the simplex that is closest to ``x`` along ``axis``: ``max(x - t, 0)``, which sums to 1.

    Like softmax, but small ``x`` get exactly 0. A row of -inf gives zeros.

    Shape: that of ``x``.
    Gradient: ``adj - mean(adj)`` over the support, the places with ``y > 0``, and 0 elsewhere.
    Differs: Marian composes it of six operators, for nodes of one axis only.
    Source: Martins and Astudillo 2016; Marian, ``sparsemax``.
    """
    return SparsemaxNodeOp(x, axis=axis_in("sparsemax", x, axis))


class LossNodeOp(FloatNodeOp):
    """Base of losses that predict classes. Children: the logits and the classes."""

    index_children = (1,)

    def new_spec(self, logits: Any, indices: Any) -> Specs:
        rows, labels = math.prod(logits.shape[:-1]), math.prod(indices.shape)
        if not logits.shape or not logits.shape[-1]:
            raise ShapeError(f"expected logits with an axis of classes, got {logits.shape}")
        if labels not in self.label_counts(logits.shape):
            raise ShapeError(f"expected one label per row of the logits, got {labels} for {rows} rows")
        return super().new_spec(logits, indices)

    def label_counts(self, shape: Shape) -> tuple[int, ...]:
        """How many labels fit logits of this shape."""
        return (math.prod(shape[:-1]),)


def _classes(indices: Array, logits: Array) -> Array:
    """The indices, with negative ones out of range: JAX would count them from the end."""
    indices = as_positions(indices)
    if jnp.issubdtype(indices.dtype, jnp.unsignedinteger):
        return indices
    return jnp.where(indices < 0, logits.shape[-1], indices)


class CrossEntropyNodeOp(LossNodeOp):
    type = "x-ent"
    alpha: float = 0.0
    runtime_fields = ("alpha",)
    to: Type | None = None
    """Element type of the loss; ``None`` is float32, or float64 for float64 logits."""
    cases = (
        Case((2, 3, 7), (6,), domain=("real", "index:7"), alpha=0.0),
        Case((2, 3, 7), (6,), domain=("real", "index:7"), alpha=0.1, to=Type.float64),
    )
    conventions = (
        Convention(np.zeros((2, 4)), [0, -1], gradients=([[-0.75, *[0.25] * 3], [0.25] * 4], None)),
    )

    def forward_ops(self, logits: Array, indices: Array) -> Array:
        x = logits.astype(self._inner(logits))
        labels = _classes(indices, x).reshape(*x.shape[:-1], 1)
        distance, _, total = exponentials(x, -1)
        gold = jnp.take_along_axis(distance, labels, -1, mode="fill")
        loss = (1 - self.alpha) * (jnp.log(total) - gold)
        if not known(self.alpha, 0.0):
            loss = loss + self.alpha * (jnp.log(total) - jnp.mean(distance, -1, keepdims=True))
        return loss if self.to is None else loss.astype(self.to.dtype)

    def backward_ops(self, adj: Array, val: Array, logits: Array, indices: Array) -> Gradients:
        x = logits.astype(self._inner(logits))
        labels = _classes(indices, x).reshape(*x.shape[:-1], 1)
        _, powers, total = exponentials(x, -1)
        gold = jnp.arange(x.shape[-1], dtype=labels.dtype) == labels
        adj = adj.astype(x.dtype)
        target = jnp.where(gold, adj * (1 - self.alpha), 0) + adj * (self.alpha / x.shape[-1])
        gradient = powers * (adj / total) - target
        return gradient.astype(logits.dtype), None

    def _inner(self, logits: Array) -> Any:
        return np.promote_types(logits.dtype, self.to.dtype if self.to else np.float32)


def cross_entropy(
    logits: Node, indices: Node, label_smoothing: float = 0.0, output_type: TypeName | None = None
) -> Node:
    """The loss of predicting ``indices`` from ``logits``, one number per row.

    ``loss = (1 - alpha) (lse - x_gold) + alpha (lse - mean(x))`` with ``lse = log(sum(exp(x)))`` over the V
    classes and ``alpha = label_smoothing``, so that smoothing includes the gold class. ``indices`` are
    integers, one for each row in order; a class out of range gives NaN. The loss is of ``output_type``, by
    default float32, also for 16-bit logits (float64 for float64 logits). ``ShapeError`` if rows and indices
    differ in number, ``ArgumentError`` for a smoothing outside 0 to 1.

    Shape: (..., V) to (..., 1).
    Gradient: ``adj (p - (1 - alpha) onehot - alpha / V)`` for the logits, with ``p = softmax(logits)``.
    Source: Szegedy et al. 2016; Marian, ``cross_entropy``.
    """
    alpha = smoothing("cross_entropy", label_smoothing)
    to = None if output_type is None else as_type(output_type)
    if to is not None and not to.is_float:
        raise ElementTypeError(f"cross_entropy: expected a floating point type of the loss, got {to}{here()}")
    return CrossEntropyNodeOp(logits, indices, alpha=alpha, to=to)


def smoothing(op: str, value: float) -> float:
    """A label smoothing for the function ``op``; ``ArgumentError`` outside 0 to 1."""
    value = real(op, "label_smoothing", value)
    if not 0 <= value <= 1:
        raise ArgumentError(f"{op}: expected a label smoothing from 0 to 1, got {value}{here()}")
    return value


class SoftmaxCrossEntropyNodeOp(FloatNodeOp):
    type = "softmax_cross_entropy"
    cases = (
        Case((2, 3, 7), (2, 3, 7)),
        Case((2, 3, 5), (2, 3, 5), domain=("real", "mask")),
        Case((2, 1, 5), (4, 5), domain=("real", "unit")),
    )
    conventions = (
        Convention(
            [[-math.inf, 0.0, 0.0], [-math.inf, 0.0, 0.0]],
            [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
            gradients=(
                [[0, -0.5, 0.5], [-1, 0.5, 0.5]],
                [[0, math.log(2), math.log(2)], [math.inf, math.log(2), math.log(2)]],
            ),
        ),
    )

    def new_spec(self, logits: Any, labels: Any) -> Specs:
        if logits.shape[-1:] != labels.shape[-1:] or not logits.shape:
            raise ShapeError(
                f"expected a label for each class, got {labels.shape} for logits of {logits.shape}"
            )
        return super().new_spec(logits, labels)

    def forward_ops(self, logits: Array, labels: Array) -> Array:
        surprisal, _ = self._surprisal(logits, labels)
        return jnp.sum(accumulable(labels) * surprisal, -1, keepdims=True)

    def backward_ops(self, adj: Array, val: Array, logits: Array, labels: Array) -> Gradients:
        surprisal, p = self._surprisal(logits, labels)
        wide = accumulable(labels)
        by_logits = adj * (p * jnp.sum(wide, -1, keepdims=True) - wide)
        return by_logits.astype(logits.dtype), within(adj * surprisal, labels.dtype)

    def _surprisal(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        """``lse - x``, 0 for an impossible class without a label; and ``softmax(x)``."""
        x = accumulable(logits)
        distance, powers, total = exponentials(x, -1)
        absent = (x == -jnp.inf) & (labels == 0)
        return jnp.where(absent, 0, jnp.log(total) - distance), powers / total


def softmax_cross_entropy(logits: Node, labels: Node) -> Node:
    """The cross entropy of the distributions ``labels`` and ``softmax(logits)``, one number per row.

    ``loss = sum(labels (lse - x))`` with ``lse = log(sum(exp(x)))`` over the V classes: ``cross_entropy``
    with a label, a real number, for each class. The labels of a row may have any sum, even less than 1; a
    logit of -inf with the label 0 adds nothing. The loss is float32, also for 16-bit children (float64 for
    float64 children). ``ShapeError`` if the last axes differ; the axes before them broadcast.

    Shape: (..., V) and (..., V) to (..., 1).
    Gradient: ``adj (p sum(labels) - labels)`` for the logits, with ``p = softmax(logits)``, and
    ``adj (lse - x)``, in float16 cut to its largest number, for the labels.
    Source: Alea TK, ``SoftmaxCrossEntropy``, whose loss is the mean over the rows; no counterpart in Marian.
    """
    return SoftmaxCrossEntropyNodeOp(logits, labels)


class UnlikelihoodNodeOp(LossNodeOp):
    type = "unlikelihood"
    cases = (
        Case((2, 2, 3, 7), (12,), domain=("real", "index:7")),
        Case((2, 2, 3, 5), (6,), domain=("real", "index:5")),
    )
    conventions = (
        Convention(
            [[1000.0, 0.0, 0.0], [0.0, 1000.0, 1000.0], [-math.inf] * 3, [-math.inf, 0.0, 0.0]],
            [0, 0, 0, 0],
            gradients=([[1, -0.5, -0.5], [0] * 3, [0] * 3, [0] * 3], None),
        ),
        Convention(np.zeros((2, 4)), [0, -1], gradients=([[0.25, *[-1 / 12] * 3], [math.nan] * 4], None)),
    )

    def label_counts(self, shape: Shape) -> tuple[int, ...]:
        return math.prod(shape[:-1]), math.prod(shape[-3:-1])

    @in_float32
    def forward_ops(self, logits: Array, indices: Array) -> Array:
        odds, *_ = self._odds(logits, indices)
        return jax.nn.softplus(odds)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, logits: Array, indices: Array) -> Gradients:
        odds, named, others = self._odds(logits, indices)
        slope = adj * jax.nn.sigmoid(odds)
        return jnp.where(named, slope, -slope * others), None

    def _odds(self, x: Array, indices: Array) -> tuple[Array, Array, Array]:
        """``log(p / (1 - p))``, the logit of the indexed class minus logsumexp of the others; the one-hot
        mask of that class; and the softmax of the others among themselves."""
        rows = x.shape[:-1] if indices.size == math.prod(x.shape[:-1]) else x.shape[-3:-1]
        labels = _classes(indices, x).reshape(*[1] * (x.ndim - 1 - len(rows)), *rows, 1)
        named = jnp.arange(x.shape[-1], dtype=labels.dtype) == labels
        logit = jnp.take_along_axis(x, labels, -1, mode="fill")
        others = jnp.where(named, -jnp.inf, x)
        top = largest(others, -1)
        powers = jnp.exp(others - top)
        total = jnp.sum(powers, -1, keepdims=True)
        odds = jnp.where(logit == -jnp.inf, logit, logit - top - jnp.log(total))
        return odds, named, powers / divisor(total)


def unlikelihood(logits: Node, indices: Node) -> Node:
    """The loss that penalizes ``indices``: ``-log(1 - p)`` with ``p = softmax(logits)[index]``.

    Computed as ``log(1 + exp(x_index - lse))`` with ``lse`` over the other classes, which stays finite where
    p rounds to 1. ``indices`` are integers, one for each row, or one for each row of the last two axes before
    V, (time, batch), which then repeat along the leading axes; a class out of range gives NaN. The loss is
    float32, also for 16-bit logits (float64 for float64 logits). ``ShapeError`` if rows and indices differ in
    number.

    Shape: (..., V) to (..., 1).
    Gradient: ``adj p`` for the indexed logit, ``-adj p q`` for the others with q the softmax among them.
    Differs: Marian composes it of softmax, gather and log, and has inf and NaN where p rounds to 1.
    Source: Welleck et al. 2020; Marian, ``unlikelihood``.
    """
    (wide,) = widened(node("unlikelihood", logits))
    return UnlikelihoodNodeOp(wide, indices)
