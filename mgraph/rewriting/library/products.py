"""Matrix products that take over what is done around them."""

from __future__ import annotations

import math

from ...node import Node
from ...ops.arithmetic import ScalarMultNodeOp
from ...ops.product import AffineNodeOp, DotBatchedLegacyNodeOp, DotBatchedNodeOp, DotNodeOp
from ...ops.shape import TransposeNodeOp
from ..patterns import Field, Label, Match, Op
from ..rule import again, rule
from .numbers import product

PRODUCTS_OF_TWO = (DotNodeOp, DotBatchedNodeOp, DotBatchedLegacyNodeOp)


def swaps_matrices(node: Node) -> bool:
    """Whether a transpose swaps the last two axes and no others."""
    axes = node.operator.axes
    return len(axes) >= 2 and axes == (*range(len(axes) - 2), len(axes) - 1, len(axes) - 2)


A, B = Label("a"), Label("b")


def transposed(x: Label) -> Op:
    return Op(TransposeNodeOp, x, where=swaps_matrices)


@rule(Op((AffineNodeOp, *PRODUCTS_OF_TWO), transposed(A), B, ...))
def transposed_left_factors(m: Match) -> Node | None:
    """``dot(a^T, b)`` is ``dot(a, b, trans_a=True)``, for a matrix or a batch of matrices ``a``."""
    rows_only = isinstance(m.root, DotNodeOp | AffineNodeOp)
    if rows_only and len(m.a.shape) != 2:
        return None
    return again(m.root, m.a, *m.root.children[1:], trans_a=not m.root.operator.trans_a)


@rule(Op((AffineNodeOp, *PRODUCTS_OF_TWO), A, transposed(B), ...))
def transposed_right_factors(m: Match) -> Node:
    """``dot(a, b^T)`` is ``dot(a, b, trans_b=True)``, for a matrix or a batch of matrices ``b``."""
    return again(m.root, m.a, m.b, *m.root.children[2:], trans_b=not m.root.operator.trans_b)


@rule(
    Op(TransposeNodeOp, Label("product", Op((DotNodeOp, DotBatchedNodeOp), A, B)), where=swaps_matrices),
    alone=("product",),
)
def transposed_products(m: Match) -> Node | None:
    """``(a b)^T`` is ``b^T a^T``."""
    if len(m.a.shape) < 2 or (isinstance(m.product, DotNodeOp) and len(m.a.shape) != 2):
        return None
    fields = m.product.operator
    return again(m.product, m.b, m.a, trans_a=not fields.trans_b, trans_b=not fields.trans_a)


@rule(Op(ScalarMultNodeOp, Label("product", Op(PRODUCTS_OF_TWO, ...)), c=Field("c")), alone=("product",))
def scaled_products(m: Match) -> Node | None:
    """``dot(a, b) * c`` is ``dot(a, b, scale=c)``."""
    scale = product(m.product, m.product.operator.scale, m.c)
    return None if scale is None else again(m.product, *m.product.children, scale=scale)


@rule(Label("product", Op(DotNodeOp, A, B)) + Label("bias"), alone=("product",))
def affine(m: Match) -> Node | None:
    """``dot(a, b) + bias`` is ``affine(a, b, bias)``, for one number per column, the same in all rows."""
    columns = m.product.shape[-1]
    fits = m.bias.shape[-1:] == (columns,) and math.prod(m.bias.shape) == columns
    if not fits or m.root.spec is not m.product.spec:
        return None
    fields = m.product.operator
    return AffineNodeOp(m.a, m.b, m.bias, trans_a=fields.trans_a, trans_b=fields.trans_b, scale=fields.scale)


PRODUCTS = (transposed_left_factors, transposed_right_factors, transposed_products, scaled_products, affine)
