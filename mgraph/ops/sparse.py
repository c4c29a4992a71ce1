"""Products of a sparse matrix and a dense one.

A sparse matrix S of shape (rows, columns) is given in compressed rows (CSR): its entries' ``values`` and
column ``indices``, both (nnz,), row after row, and ``offsets``, (rows + 1,), from 0 to nnz. The entries of
row i run from ``offsets[i]`` to just before ``offsets[i + 1]``. S is never made dense: a product with n
columns takes O(nnz n) steps. An entry with a column out of range, or after the last offset, is ignored, so
arrays may be padded.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import flag
from ..cases import Case
from ..errors import ShapeError
from ..node import Node
from ..shape import Shape, as_shape
from ..specs import Spec, Specs, spec_of
from .operands import FloatNodeOp, Gradients, accumulable, as_positions, node


def _cases(dense: Shape, sparse_shape: Shape, **fields: Any) -> Case:
    rows, columns = sparse_shape
    return Case(
        (7,), (7,), (rows + 1,), dense,
        domain=("real", f"index:{columns}", "offsets:7", "real"),
        sparse_shape=sparse_shape,
        **fields,
    )  # fmt: skip


class CSRDotNodeOp(FloatNodeOp):
    """``op(S) D``, or ``D op(S)`` where the operands are swapped. Children: values, indices, offsets, D."""

    type = "csr_dot"
    color = "orange"
    index_children = (1, 2)
    sparse_shape: Shape
    trans_s: bool = False
    swap_operands: bool = False
    cases = (
        _cases((5, 3), (4, 5)),
        _cases((4, 2, 3), (4, 5), trans_s=True),
        _cases((5,), (4, 5)),
        _cases((2, 3, 4), (4, 5), swap_operands=True),
        _cases((3, 5), (4, 5), trans_s=True, swap_operands=True),
    )

    def new_spec(self, values: Spec, indices: Spec, offsets: Spec, dense: Spec) -> Specs:
        vectors = [len(s.shape) == 1 for s in (values, indices, offsets)]
        if not all(vectors) or values.shape != indices.shape:
            raise ShapeError("expected values and indices of one shape (nnz,), and offsets with one axis")
        if len(self.sparse_shape) != 2:
            raise ShapeError(f"a sparse matrix has two axes, got the shape {self.sparse_shape}")
        rows = self.sparse_shape[0]
        if offsets.shape[0] != rows + 1:
            raise ShapeError(f"expected {rows + 1} offsets for {rows} rows, got {offsets.shape[0]}")
        result, inner = self._sizes()
        axis = -1 if self.swap_operands else 0
        if (dense.shape[-1:] if self.swap_operands else dense.shape[:1]) != (inner,):
            raise ShapeError(
                f"a product needs equal inner sizes, got {inner} and axis {axis} of {dense.shape}"
            )
        shape = list(dense.shape)
        shape[axis] = result
        return spec_of(tuple(shape), values.type)

    def forward_ops(self, values: Array, indices: Array, offsets: Array, dense: Array) -> Array:
        to, along = self._ends(indices, offsets)
        size, _ = self._sizes()
        terms = accumulable(values)[:, None] * _rows(self._matrix(dense), along)
        return self._restored(jax.ops.segment_sum(terms, to, size), dense)

    def backward_ops(
        self, adj: Array, val: Array, values: Array, indices: Array, offsets: Array, dense: Array
    ) -> Gradients:
        to, along = self._ends(indices, offsets)
        _, size = self._sizes()
        adj_rows = _rows(self._matrix(adj), to)
        d_values = jnp.sum(adj_rows * _rows(self._matrix(dense), along), 1)
        d_dense = jax.ops.segment_sum(accumulable(values)[:, None] * adj_rows, along, size)
        return d_values.astype(values.dtype), None, None, self._restored(d_dense, dense)

    def _sizes(self) -> tuple[int, int]:
        """The size of the result's axis and of D's axis that the product replaces."""
        rows, columns = self.sparse_shape
        return (columns, rows) if self._maps_rows() else (rows, columns)

    def _maps_rows(self) -> bool:
        """Whether entries map their row to their column rather than the other way."""
        return self.trans_s != self.swap_operands

    def _ends(self, indices: Array, offsets: Array) -> tuple[Array, Array]:
        """For each entry, the position in the result and the position in D that it connects."""
        indices, offsets = as_positions(indices), as_positions(offsets)
        # JAX would count a negative column from the end.
        indices = jnp.where(indices < 0, self.sparse_shape[1], indices)
        # An entry's row is the number of rows that end before it.
        ends = jnp.zeros(indices.shape, jnp.int32).at[offsets[1:]].add(1, mode="drop")
        rows = jnp.cumsum(ends)
        return (indices, rows) if self._maps_rows() else (rows, indices)

    def _matrix(self, dense: Array) -> Array:
        """D with the axis of the product in front and all others merged, in float32 or wider."""
        dense = accumulable(dense)
        if self.swap_operands:
            return dense.reshape(math.prod(dense.shape[:-1]), dense.shape[-1]).T
        return dense.reshape(dense.shape[0], math.prod(dense.shape[1:]))

    def _restored(self, matrix: Array, dense: Array) -> Array:
        """The inverse of ``_matrix``, except for the size of the first axis."""
        matrix = matrix.astype(dense.dtype)
        if self.swap_operands:
            return matrix.T.reshape(*dense.shape[:-1], matrix.shape[0])
        return matrix.reshape(matrix.shape[0], *dense.shape[1:])


def _rows(matrix: Array, positions: Array) -> Array:
    """Rows of a matrix; zeros for a position out of range."""
    return matrix.at[positions].get(mode="fill", fill_value=0)


def csr_dot(
    A_shape: Shape, A_values: Node, A_indices: Node, A_offsets: Node, B: Node, trans_a: bool = False
) -> Node:
    """``op(A) B`` of a sparse matrix A in compressed rows and a dense B; ``op`` transposes if asked to.

    ``A_shape``: (rows, columns) of A; ``A_values`` and ``A_indices``: (nnz,), the entries of A and their
    columns, row after row; ``A_offsets``: (rows + 1,), where each row begins, from 0 to nnz. Indices and
    offsets are integers, uint32 in Marian. An entry with an index out of range, or after the last offset, is
    ignored. ``ShapeError`` if the shapes do not fit, ``ElementTypeError`` if indices are not integers.

    Shape: (m, k) and (k, ...) to (m, ...); with ``trans_a`` (k, m) and (k, ...) to (m, ...).
    Gradient: ``op(A)^T adj`` for B; the sum of ``adj[i] B[j]`` for the value at (i, j) of ``op(A)``.
    Differs: Marian has no gradient for the values, and on CPU neither ``trans_a`` nor any gradient.
    Source: Marian, ``csr_dot``.
    """
    children = [node("csr_dot", x) for x in (A_values, A_indices, A_offsets, B)]
    return CSRDotNodeOp(
        *children, sparse_shape=as_shape(A_shape), trans_s=flag("csr_dot", "trans_a", trans_a)
    )


def dot_csr(
    A: Node, B_shape: Shape, B_values: Node, B_indices: Node, B_offsets: Node, trans_b: bool = False
) -> Node:
    """``A op(B)`` of a dense A and a sparse matrix B in compressed rows; ``op`` transposes if asked to.

    The parts of B and the errors are as for ``csr_dot``.

    Shape: (..., k) and (k, n) to (..., n); with ``trans_b`` (..., k) and (n, k) to (..., n).
    Gradient: ``adj op(B)^T`` for A; the sum of ``A[..., i] adj[..., j]`` for the value at (i, j) of
    ``op(B)``.
    Differs: Marian declares it, but stops when it is used.
    Source: Marian, ``dot_csr``.
    """
    children = [node("dot_csr", x) for x in (B_values, B_indices, B_offsets, A)]
    return CSRDotNodeOp(
        *children,
        sparse_shape=as_shape(B_shape),
        trans_s=flag("dot_csr", "trans_b", trans_b),
        swap_operands=True,
    )
