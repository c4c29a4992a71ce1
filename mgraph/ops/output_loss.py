"""The loss of an output layer with many classes, computed for a chunk of the classes at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import flag, whole
from ..cases import Case
from ..device import platform_of
from ..errors import ArgumentError, ShapeError
from ..node import Node
from ..places import here
from ..specs import Spec, Specs, spec_of
from ..types import as_type
from ..varying import varied_as
from .operands import FloatNodeOp, Gradients, accumulable, known, node
from .precision import accumulator
from .product import as_matrix, check_bias, matmul, matmul_of_columns, product_shape
from .softmax import smoothing
from .structure import get

T = TypeVar("T")
_Sums = tuple[Array, Array, Array, Array]
"""For each row, ``(n, 1)``: the largest logit, the sum of powers, the label's logit, the sum of logits."""
_Gradients = tuple[Array, Array, Array]
"""The gradients for the rows, the matrix and the bias."""

LOGITS = {"cpu": 1 << 22}
"""Logits computed at a time, by platform: few enough for caches, enough for fast products."""
LOGITS_ELSEWHERE = 1 << 26
"""With as few logits as on a CPU, an update of a big transformer on an H200 takes a seventh longer."""
LEAST_CHUNK = 256


class AffineCrossEntropyNodeOp(FloatNodeOp):
    """Children: x, the matrix, the classes, then a bias if there is one. Outputs: the loss and ``lse``.

    Neither rule holds the logits of all classes: the forward rule sums exponentials from chunk to chunk, the
    backward rule computes the logits again.
    """

    type = "affine_cross_entropy"
    color = "orange"
    index_children = (2,)
    runtime_fields = ("alpha",)
    alpha: float = 0.0
    trans_b: bool = False
    chunk: int
    """Classes at a time."""
    parts: int = 1
    """Number of equal ranges of classes, which are computed side by side, each in its own chunks."""
    cases = (
        Case((2, 3, 4), (4, 7), (6,), domain=("real", "real", "index:7"), chunk=3),
        Case((3, 4), (6, 4), (3,), (1, 6), domain=("real", "real", "index:6", "real"),
             chunk=2, alpha=0.1, trans_b=True),
        Case((3, 4), (4, 5), (3,), (5,), domain=("real", "real", "index:5", "real"), chunk=9, alpha=0.2),
        Case((3, 4), (6, 4), (3,), (1, 6), domain=("real", "real", "index:6", "real"),
             chunk=2, parts=2, alpha=0.1, trans_b=True),
        Case((3, 4), (4, 6), (3,), (6,), domain=("real", "real", "index:6", "real"), chunk=2, parts=3),
    )  # fmt: skip

    def new_spec(self, x: Spec, matrix: Spec, indices: Spec, *bias: Spec) -> Specs:
        if len(matrix.shape) != 2:
            raise ShapeError(f"expected rows and a matrix, got {x.shape} and {matrix.shape}")
        *_, classes = product_shape(x.shape, matrix.shape, False, self.trans_b)
        if not classes:
            raise ShapeError(f"expected at least one class, got a matrix {matrix.shape}")
        rows, labels = math.prod(x.shape[:-1]), math.prod(indices.shape)
        if rows != labels:
            raise ShapeError(f"expected one label per row, got {labels} for {rows} rows")
        if classes % self.parts:
            raise ShapeError(f"expected classes in {self.parts} ranges of as many, got {classes}")
        for each in bias:
            check_bias(each, classes)
        return (spec_of((*x.shape[:-1], 1), as_type(accumulator(x.type.dtype))),) * 2

    def forward_ops(self, x: Array, matrix: Array, indices: Array, *bias: Array) -> tuple[Array, Array]:
        rows, labels, classes = self._given(x, matrix, indices)
        top, total, gold, summed = self._by_range(self._sums, rows, labels, matrix, bias)
        if self.parts > 1:
            tops, top = top, jnp.max(top, 0)
            total = jnp.sum(total * jnp.exp(tops - top), 0)
            gold, summed = jnp.sum(gold, 0), jnp.sum(summed, 0)
        gold = jnp.where((labels >= 0) & (labels < classes), gold, jnp.nan)
        # Not as distances from lse, which may have fewer digits.
        loss = (1 - self.alpha) * (jnp.log(total) - (gold - top))
        if not known(self.alpha, 0.0):
            loss = loss + self.alpha * (jnp.log(total) - (summed / classes - top))
        lse = top + jnp.log(total)
        return loss.reshape(*x.shape[:-1], 1), lse.reshape(*x.shape[:-1], 1)

    def _sums(self, rows: Array, labels: Array, matrix: Array, bias: tuple[Array, ...]) -> _Sums:
        """The sums over a range of classes; its first class has the label 0."""
        kind = accumulator(rows.dtype)
        zeros = jnp.zeros(labels.shape, kind)
        start = jnp.full(labels.shape, jnp.finfo(kind).min), zeros, zeros, zeros

        def add(sums: _Sums, first: Any, size: int) -> _Sums:
            before, total, gold, summed = sums
            logits = self._logits(rows, matrix, bias, first, size)
            top = jnp.maximum(before, jax.lax.stop_gradient(jnp.max(logits, -1, keepdims=True)))
            total = total * jnp.exp(before - top) + jnp.sum(jnp.exp(logits - top), -1, keepdims=True)
            place = labels - first
            found = jnp.take_along_axis(logits, jnp.clip(place, 0, size - 1), -1)
            gold = gold + jnp.where((place >= 0) & (place < size), found, 0)
            return top, total, gold, summed + jnp.sum(logits, -1, keepdims=True)

        return self._by_chunk(matrix, add, varied_as(start, (rows, labels, matrix, bias)))

    def backward_ops(
        self,
        adj: tuple[Array, Array],
        val: tuple[Array, Array],
        x: Array,
        matrix: Array,
        indices: Array,
        *bias: Array,
    ) -> Gradients:
        rows, labels, classes = self._given(x, matrix, indices)
        by_loss, by_lse = (each.reshape(labels.shape) for each in adj)
        lse = val[1].reshape(labels.shape)
        slopes = partial(self._slopes_by_chunk, lse=lse, by_loss=by_loss, by_lse=by_lse, classes=classes)
        by_rows, by_matrix, by_bias = self._by_range(slopes, rows, labels, matrix, bias)
        if self.parts > 1:
            by_rows = jnp.sum(by_rows, 0)
            by_matrix = by_matrix if self.trans_b else jnp.moveaxis(by_matrix, 0, 1)
        found = by_rows.reshape(x.shape).astype(x.dtype), by_matrix.reshape(matrix.shape), None
        return *found, *(by_bias.reshape(each.shape).astype(each.dtype) for each in bias)

    def _slopes_by_chunk(
        self,
        rows: Array,
        labels: Array,
        matrix: Array,
        bias: tuple[Array, ...],
        *,
        lse: Array,
        by_loss: Array,
        by_lse: Array,
        classes: int,
    ) -> _Gradients:
        """The gradients for a range of the ``classes``; its first class has the label 0."""
        columns = 0 if self.trans_b else 1
        by_class = jnp.zeros(matrix.shape[columns], lse.dtype)
        start = jnp.zeros(rows.shape, lse.dtype), jnp.zeros_like(matrix), by_class

        def add(sums: _Gradients, first: Any, size: int) -> _Gradients:
            by_rows, by_matrix, by_bias = sums
            logits = self._logits(rows, matrix, bias, first, size)
            named = jnp.arange(size, dtype=labels.dtype) == labels - first
            target = jnp.where(named, 1 - self.alpha, 0) + self.alpha / classes
            # No share exceeds 1, although large logits may be rounded differently the second time.
            shares = jnp.exp(jnp.minimum(logits - lse, 0))
            slopes = (by_loss + by_lse) * shares - by_loss * target
            narrow = slopes.astype(rows.dtype)
            by_rows = by_rows + matmul(narrow, self._part(matrix, first, size), False, not self.trans_b)
            a, b = (narrow, rows) if self.trans_b else (rows, narrow)
            part = matmul_of_columns(a, b, True, False).astype(matrix.dtype)
            by_matrix = jax.lax.dynamic_update_slice_in_dim(by_matrix, part, first, columns)
            own = jnp.sum(slopes, 0)
            return by_rows, by_matrix, jax.lax.dynamic_update_slice_in_dim(by_bias, own, first, 0)

        given = rows, labels, matrix, bias, lse, by_loss, by_lse
        return self._by_chunk(matrix, add, varied_as(start, given))

    def _given(self, x: Array, matrix: Array, indices: Array) -> tuple[Array, Array, int]:
        """The rows ``(n, k)``, their labels ``(n, 1)``, and the number of classes."""
        return as_matrix(x), indices.reshape(-1, 1).astype(jnp.int32), matrix.shape[0 if self.trans_b else 1]

    def _part(self, matrix: Array, first: Any, size: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(matrix, first, size, 0 if self.trans_b else 1)

    def _logits(self, rows: Array, matrix: Array, bias: tuple[Array, ...], first: Any, size: int) -> Array:
        logits = matmul(rows, self._part(matrix, first, size), False, self.trans_b)
        for each in bias:
            part = jax.lax.dynamic_slice_in_dim(each.reshape(-1), first, size, 0)
            logits = logits + accumulable(part)
        return logits

    def _by_range(
        self, of_range: Callable[..., T], rows: Array, labels: Array, matrix: Array, bias: tuple[Array, ...]
    ) -> T:
        """``of_range(rows, labels, matrix, bias)`` for all classes. With several ``parts``, its results for
        the ranges, stacked along a first axis; labels then count from the first class of each range."""
        if self.parts == 1:
            return of_range(rows, labels, matrix, bias)
        axis = 0 if self.trans_b else 1
        own = matrix.shape[axis] // self.parts
        by_range = matrix.reshape(*matrix.shape[:axis], self.parts, own, *matrix.shape[axis + 1 :])
        shifted = labels - own * jnp.arange(self.parts, dtype=labels.dtype).reshape(-1, 1, 1)
        shifts = tuple(each.reshape(self.parts, own) for each in bias)
        return jax.vmap(of_range, (None, 0, axis, 0))(rows, shifted, by_range, shifts)

    def _by_chunk(self, matrix: Array, add: Callable[[T, Any, int], T], start: T) -> T:
        """``add(sums, first, size)`` for the classes from ``first`` on, chunk after chunk."""
        whole, rest = divmod(matrix.shape[0 if self.trans_b else 1], self.chunk)
        if whole:
            size = self.chunk
            numbers = jnp.arange(whole, dtype=jnp.int32)  # as labels are
            start, _ = jax.lax.scan(lambda s, i: (add(s, i * size, size), None), start, numbers)
        return add(start, whole * self.chunk, rest) if rest else start


def affine_cross_entropy(
    x: Node,
    matrix: Node,
    indices: Node,
    bias: Node | None = None,
    label_smoothing: float = 0.0,
    trans_b: bool = False,
    *,
    chunk: int | None = None,
    parts: int = 1,
) -> Node:
    """``cross_entropy(affine(x, matrix, bias), indices, label_smoothing)`` without ever holding all logits.

    ``trans_b`` takes the matrix as (V, k). ``chunk``: classes at a time; by default about as many as give
    four million logits on CPUs, 67 million elsewhere. ``parts``: number of equal ranges of classes, which are
    computed side by side, each in its own chunks, for devices that hold a range each. The gradient computes
    the logits a second time: four products in place of three, and memory for a chunk instead of several
    arrays of (rows, V).
    ``ShapeError`` if sizes do not fit, ``ArgumentError`` for a smoothing outside 0 to 1, a chunk of no
    classes, or no parts.

    Shape: (..., k), (k, V), as many labels as rows and (1, V) to (..., 1).
    Gradient: with ``s = adj (p - (1 - alpha) onehot - alpha / V)`` and ``p = softmax`` of the logits:
    ``s W^T`` for ``x``, ``x^T s`` for the matrix and, for the bias, the sum of ``s`` over the rows.
    Source: no counterpart in Marian, which holds the logits; Wijmans et al. 2024 for the idea.
    """
    alpha = smoothing("affine_cross_entropy", label_smoothing)
    rows = math.prod(node("affine_cross_entropy", x).shape[:-1])
    if chunk is None:
        at_once = LOGITS.get(platform_of(x.graph.device), LOGITS_ELSEWHERE)
        chunk = max(LEAST_CHUNK, at_once // max(rows, 1) // LEAST_CHUNK * LEAST_CHUNK)
    chunk = whole("affine_cross_entropy", "chunk", chunk)
    parts = whole("affine_cross_entropy", "parts", parts)
    if chunk < 1:
        raise ArgumentError(
            f"affine_cross_entropy: expected at least 1 class in a chunk, got {chunk}{here()}"
        )
    if parts < 1:
        raise ArgumentError(f"affine_cross_entropy: expected at least 1 part, got {parts}{here()}")
    children = (x, matrix, indices) if bias is None else (x, matrix, indices, bias)
    fields = {
        "alpha": alpha,
        "trans_b": flag("affine_cross_entropy", "trans_b", trans_b),
        "chunk": chunk,
        "parts": parts,
    }
    return get(AffineCrossEntropyNodeOp(*children, **fields), 0)
