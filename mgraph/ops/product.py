"""Matrix products. Products of 16-bit numbers are accumulated, scaled and shifted in float32."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..arrays import flag, real
from ..cases import Case
from ..errors import ShapeError
from ..node import Node
from ..platforms import kept_apart
from ..shape import Shape
from ..specs import Spec, Specs, spec_of
from .operands import FloatNodeOp, Gradients, accumulable, known
from .precision import accumulator

_BLOCK = 32
"""Rows that are copied together, a cache line of bfloat16 numbers; packed batches have a multiple of them."""


class ProductNodeOp(FloatNodeOp):
    """Base of ``y = scale * op(a) op(b)``, where ``op`` swaps the last two axes if asked to."""

    color = "orange"
    stored_by_loops = True
    trans_a: bool = False
    trans_b: bool = False
    scale: float = 1.0
    runtime_fields = ("scale",)

    def product_shape(self, a: Shape, b: Shape) -> Shape:
        """Shape of one matrix product; ``ShapeError`` if rows and columns do not fit."""
        return product_shape(a, b, self.trans_a, self.trans_b)

    def product(self, a: Array, b: Array) -> Array:
        """``scale * op(a) op(b)``, in its accumulation type."""
        return self._scaled(matmul(a, b, self.trans_a, self.trans_b))

    def product_gradients(self, adj: Array, a: Array, b: Array) -> Gradients:
        """With ``y = op(a) op(b)``: ``d op(a) = adj op(b)^T`` and ``d op(b) = op(a)^T adj``, transposed back
        where ``op`` transposes.

        The adjoint is scaled first, so that sums do not overflow before they are scaled down; except in
        float16, whose float32 sums cannot overflow, while a small adjoint could vanish.
        """
        first = adj.dtype != jnp.float16
        if first:
            adj = self._scaled(adj)
        if self.trans_a:
            da = matmul_of_columns(b, adj, self.trans_b, True)
        else:
            da = matmul(adj, b, False, not self.trans_b)
        if self.trans_b:
            db = matmul_of_columns(adj, a, True, self.trans_a)
        else:
            db = matmul_of_columns(a, adj, not self.trans_a, False)
        if not first:
            da, db = self._scaled(da), self._scaled(db)
        return da.astype(a.dtype), db.astype(b.dtype)

    def steps_as_rows(self, x: Array) -> Array:
        """``a``, or the adjoint, of many steps, ``(time, ...)``, as that of one product with more rows, whose
        gradient for ``b`` is the sum over the steps. For products without ``trans_a``."""
        return jnp.moveaxis(x, 0, -3).reshape(*x.shape[1:-2], -1, x.shape[-1])

    def _scaled(self, x: Array) -> Array:
        return x if known(self.scale, 1.0) else x * self.scale


def product_shape(a: Shape, b: Shape, trans_a: bool, trans_b: bool) -> Shape:
    """Shape of one product ``op(a) op(b)``; ``ShapeError`` if rows and columns do not fit."""
    if len(b) < 2 or len(a) < (2 if trans_a else 1):
        raise ShapeError(f"expected matrices, got {a} and {b}")
    rows = a[-1:] if trans_a else a[-2:-1]
    inner_a = a[-2] if trans_a else a[-1]
    inner_b, columns = reversed(b[-2:]) if trans_b else b[-2:]
    if inner_a != inner_b:
        marks = ["^T" if t else "" for t in (trans_a, trans_b)]
        raise ShapeError(
            f"a product needs equal inner sizes, got {inner_a} and {inner_b} "
            f"in {a}{marks[0]} times {b}{marks[1]}"
        )
    return *rows, columns


def check_bias(bias: Spec, columns: int) -> None:
    """``ShapeError`` unless there is a number for each column."""
    if bias.shape[-1:] != (columns,) or math.prod(bias.shape) != columns:
        raise ShapeError(f"expected a bias of shape (1, {columns}), got {bias.shape}")


def matmul(a: Array, b: Array, trans_a: bool, trans_b: bool) -> Array:
    """``op(a) op(b)``. The transposes are part of the product's dimension numbers: as separate operations XLA
    might merge them with earlier transposes into something slower."""
    kind = accumulator(a.dtype)
    if a.shape[:-2] != b.shape[:-2]:
        # XLA on CPUs cannot multiply a transposed bfloat16 matrix by a batch, but it can multiply a copy.
        rows = kept_apart(a.mT) if trans_a else a
        return jnp.matmul(rows, b.mT if trans_b else b, preferred_element_type=kind)
    batch = tuple(range(a.ndim - 2))
    inner = (a.ndim - 2 if trans_a else a.ndim - 1,), (b.ndim - 1 if trans_b else b.ndim - 2,)
    return jax.lax.dot_general(a, b, (inner, (batch, batch)), preferred_element_type=kind)


def matmul_of_columns(a: Array, b: Array, trans_a: bool, trans_b: bool) -> Array:
    """``op(a) op(b)`` for rules that usually transpose ``a``, for which XLA has no fast product on CPUs. So
    ``a`` is transposed by a copy, kept apart from the computation of ``a``, which it would slow down. A copy
    does not pay off for a result with more rows than columns, except for a vector, which XLA would sum less
    accurately. Where it does not pay off and the rows are a multiple of 512, a stride that defeats caches,
    the transposed product is computed instead. Barriers keep XLA from undoing this. A bfloat16 matrix is
    always copied, in a way of its own. On other platforms transposing is free.
    """
    if not trans_a:
        return matmul(a, b, False, trans_b)
    rows, columns = a.shape[-1], b.shape[-2 if trans_b else -1]
    if a.ndim > 2:
        on_cpu = _matmul_of_batch_copy
    elif a.dtype == jnp.bfloat16:
        on_cpu = _bfloat16_matmul
    elif rows <= columns or columns == 1:
        on_cpu = _matmul_of_copy
    elif rows % 512 == 0:
        on_cpu = _transposed_matmul
    else:
        return matmul(a, b, True, trans_b)
    product: Array = jax.lax.platform_dependent(
        a, b, cpu=partial(on_cpu, trans_b=trans_b), default=partial(matmul, trans_a=True, trans_b=trans_b)
    )
    return product


def _matmul_of_batch_copy(a: Array, b: Array, trans_b: bool) -> Array:
    # A matrix as one axis has only one layout, so XLA copies it once instead of into another layout first.
    # Not for a single matrix, which devices may divide along either axis.
    turned = _barred(a).mT
    flat = _barred(turned.reshape(*a.shape[:-2], math.prod(a.shape[-2:])))
    return matmul(flat.reshape(turned.shape), b, False, trans_b)


def _matmul_of_copy(a: Array, b: Array, trans_b: bool) -> Array:
    return matmul(_barred(_barred(a).mT), b, False, trans_b)


def _transposed_matmul(a: Array, b: Array, trans_b: bool) -> Array:
    return _barred(matmul(b, a, not trans_b, False)).mT


def _bfloat16_matmul(a: Array, b: Array, trans_b: bool) -> Array:
    # The narrower matrix is copied; if that is b, the product comes out transposed. Its barrier keeps XLA
    # from making a product of transposed matrices of it, which it cannot run in bfloat16.
    if not trans_b and a.shape[-1] > b.shape[-1]:
        return _barred(matmul(_copy_by_blocks(b), a, False, False)).mT
    return matmul(_copy_by_blocks(a), b, False, trans_b)


def _copy_by_blocks(a: Array) -> Array:
    """``a^T``. XLA does not see that this copy is one, so it does not make a transposed product of it, which
    in bfloat16 it would compute in float32. The first axis is divided, and not merged with the second, since
    devices may divide the matrix along either."""
    rows, columns = a.shape
    block = math.gcd(rows, _BLOCK)
    turned = _barred(_barred(a).reshape(rows // block, block, columns).transpose(2, 0, 1))
    return turned.reshape(columns, rows)


def _barred(x: Array) -> Array:
    barred: Array = jax.lax.optimization_barrier(x)
    return barred


def as_matrix(x: Array) -> Array:
    """All axes but the last merged: XLA is fastest at products of matrices."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


class RowsProductNodeOp(ProductNodeOp):
    """Base of products of the rows of ``a``, whatever its rank, and a matrix ``b``."""

    def steps_as_rows(self, x: Array) -> Array:
        return x

    def rows_spec(self, a: Spec, b: Spec) -> Spec:
        """Spec of the product of rows."""
        if len(b.shape) != 2 or (self.trans_a and len(a.shape) != 2):
            raise ShapeError("expected a matrix b, and a matrix a to transpose; bdot multiplies batches")
        return spec_of((*a.shape[:-2], *self.product_shape(a.shape, b.shape)), a.type)

    def rows_product(self, a: Array, b: Array) -> Array:
        """``scale * op(a) op(b)`` with a's leading axes kept, in its accumulation type."""
        y = self.product(as_matrix(a), b)
        return y if a.ndim == 2 else y.reshape(*a.shape[:-1], y.shape[-1])

    def rows_gradients(self, adj: Array, a: Array, b: Array) -> Gradients:
        """Gradients for ``a`` and ``b``."""
        da, db = self.product_gradients(as_matrix(adj), as_matrix(a), b)
        return da.reshape(a.shape), db


class DotNodeOp(RowsProductNodeOp):
    type = "dot"
    cases = (
        Case((3, 512), (512, 4)),
        Case((3, 5), (5, 4)),
        Case((2, 3, 5), (6, 5), trans_b=True),
        Case((5, 3), (5, 4), trans_a=True, scale=0.5),
        Case((5, 3), (4, 5), trans_a=True, trans_b=True),
    )

    def new_spec(self, a: Spec, b: Spec) -> Specs:
        return self.rows_spec(a, b)

    def forward_ops(self, a: Array, b: Array) -> Array:
        return self.rows_product(a, b).astype(a.dtype)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return self.rows_gradients(adj, a, b)


def _options(op: str, trans_a: bool, trans_b: bool, scale: float) -> dict[str, Any]:
    """The fields of a product, checked."""
    return {
        "trans_a": flag(op, "trans_a", trans_a),
        "trans_b": flag(op, "trans_b", trans_b),
        "scale": real(op, "scale", scale),
    }


def dot(a: Node, b: Node, trans_a: bool = False, trans_b: bool = False, scale: float = 1.0) -> Node:
    """``scale * op(a) op(b)`` of the rows of ``a``, of any rank, and a matrix ``b``.

    ``trans_b`` takes b as (n, k), ``trans_a`` a matrix a as (k, m). ``ShapeError`` if the inner sizes differ.

    Shape: (..., k) and (k, n) to (..., n).
    Gradient: ``scale * adj op(b)^T`` for ``a``; ``scale * op(a)^T adj``, summed over rows, for ``b``.
    Source: Marian, ``dot``.
    """
    return DotNodeOp(a, b, **_options("dot", trans_a, trans_b, scale))


class AffineNodeOp(RowsProductNodeOp):
    type = "affine"
    cases = (
        Case((3, 512), (512, 4), (1, 4)),
        Case((3, 5), (5, 4), (1, 4)),
        Case((2, 3, 5), (6, 5), (6,), trans_b=True, scale=2.0),
        Case((5, 3), (5, 4), (1, 4), trans_a=True),
        Case((5, 3), (4, 5), (4,), trans_a=True, trans_b=True),
    )

    def new_spec(self, a: Spec, b: Spec, bias: Spec) -> Specs:
        spec = self.rows_spec(a, b)
        check_bias(bias, spec.shape[-1])
        return spec

    def forward_ops(self, a: Array, b: Array, bias: Array) -> Array:
        return (self.rows_product(a, b) + accumulable(bias.reshape(-1))).astype(a.dtype)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array, bias: Array) -> Gradients:
        columns = jnp.sum(accumulable(as_matrix(adj)), 0).astype(bias.dtype).reshape(bias.shape)
        return *self.rows_gradients(adj, a, b), columns


def affine(
    a: Node, b: Node, bias: Node, trans_a: bool = False, trans_b: bool = False, scale: float = 1.0
) -> Node:
    """``dot(a, b, trans_a, trans_b, scale) + bias``; the scale is not applied to the bias.

    ``bias``: (1, n) or (n,). ``ShapeError`` if the inner sizes or the bias do not fit.

    Shape: (..., k), (k, n) and (1, n) to (..., n).
    Gradient: as for ``dot``; for ``bias``, the sum of ``adj`` over all rows.
    Source: Marian, ``affine``.
    """
    return AffineNodeOp(a, b, bias, **_options("affine", trans_a, trans_b, scale))


class DotBatchedNodeOp(ProductNodeOp):
    type = "bdot"
    cases = (
        Case((2, 3, 5), (2, 5, 4)),
        Case((2, 3, 5), (2, 4, 5), trans_b=True, scale=0.25),
        Case((2, 1, 5, 3), (3, 5, 4), trans_a=True),
        Case((5, 3), (2, 4, 5), trans_a=True, trans_b=True),
    )

    def new_spec(self, a: Spec, b: Spec) -> Specs:
        matrix = self.product_shape(a.shape, b.shape)
        if len(a.shape) < 2:
            raise ShapeError(f"expected batches of matrices, got {a.shape} and {b.shape}")
        return spec_of((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *matrix), a.type)

    def forward_ops(self, a: Array, b: Array) -> Array:
        return self.product(a, b).astype(a.dtype)

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        return self.product_gradients(adj, a, b)


def bdot(a: Node, b: Node, trans_a: bool = False, trans_b: bool = False, scale: float = 1.0) -> Node:
    """``scale * op(a) op(b)`` for each matrix of a batch: over the last two axes, the others broadcast.

    ``trans_a`` and ``trans_b`` swap a's and b's last two axes first. ``ShapeError`` if the inner sizes or the
    batches do not fit.

    Shape: (..., m, k) and (..., k, n) to (..., m, n).
    Gradient: ``scale * adj op(b)^T`` for ``a``, ``scale * op(a)^T adj`` for ``b``, summed over broadcast
    axes.
    Source: Marian, ``bdot``.
    """
    return DotBatchedNodeOp(a, b, **_options("bdot", trans_a, trans_b, scale))


class DotBatchedLegacyNodeOp(ProductNodeOp):
    type = "bdot_legacy"
    cases = (
        Case((2, 3, 5), (2, 5, 4)),
        Case((4, 3, 5), (2, 4, 5), trans_b=True, scale=0.25),
        Case((3, 2, 5, 3), (2, 1, 5, 4), trans_a=True),
        Case((5, 3, 2), (3, 4, 3), trans_a=True, trans_b=True),
    )

    def new_spec(self, a: Spec, b: Spec) -> Specs:
        matrix = self.product_shape(a.shape, b.shape)
        if len(a.shape) < 2:
            raise ShapeError(f"expected batches of matrices, got {a.shape} and {b.shape}")
        many, few = math.prod(a.shape[:-2]), math.prod(b.shape[:-2])
        if few > many or few < min(many, 1):
            raise ShapeError(
                f"expected at least one matrix b, and at most as many as a, got {few} for {many}"
            )
        return spec_of((*a.shape[:-2], *matrix), a.type)

    def forward_ops(self, a: Array, b: Array) -> Array:
        matrices, batch, _ = self._paired(a, b)
        y = self.product(matrices, batch).astype(a.dtype)
        return y.reshape(*a.shape[:-2], *y.shape[-2:])

    def backward_ops(self, adj: Array, val: Array, a: Array, b: Array) -> Gradients:
        matrices, batch, pairs = self._paired(a, b)
        da, db = self.product_gradients(_as_batch(adj), matrices, batch)
        few = _as_batch(b)
        db = jnp.zeros(few.shape, accumulator(b.dtype)).at[pairs].add(accumulable(db)).astype(b.dtype)
        return da.reshape(a.shape), db.reshape(b.shape)

    def _paired(self, a: Array, b: Array) -> tuple[Array, Array, np.ndarray]:
        """a's matrices, the matrix of b that each of them meets, and the number of that matrix."""
        matrices, few = _as_batch(a), _as_batch(b)
        pairs = np.arange(len(matrices)) % max(len(few), 1)
        return matrices, few[pairs], pairs


def _as_batch(x: Array) -> Array:
    """All axes but the last two merged."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def bdot_legacy(a: Node, b: Node, trans_a: bool = False, trans_b: bool = False, scale: float = 1.0) -> Node:
    """``scale * op(a) op(b)`` where the i-th of a's matrices meets the ``i % M``-th of b's M matrices.

    Both batches are flattened first, as for the rows of a beam over the sentences of a batch. ``trans_a`` and
    ``trans_b`` swap the last two axes first. ``ShapeError`` if the inner sizes do not fit or ``b`` has more
    matrices than ``a``. New code should use ``bdot``.

    Shape: (..., m, k) and (*, k, n) to (..., m, n).
    Gradient: ``scale * adj op(b)^T`` for ``a``; ``scale * op(a)^T adj`` for ``b``, summed over the matrices
    that each of b's meets.
    Differs: if ``b`` has fewer matrices than ``a``, Marian's gradient for ``b`` writes beyond its end.
    Source: Marian, ``bdot_legacy``.
    """
    return DotBatchedLegacyNodeOp(a, b, **_options("bdot_legacy", trans_a, trans_b, scale))


PRODUCTS = (DotNodeOp, AffineNodeOp, DotBatchedNodeOp, DotBatchedLegacyNodeOp)
"""Operators whose rules need no value and can give the gradients of many products with one product."""
