"""Rules for constants, numbers, signs, reshapes, transposes and matrix products."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from ...inits import from_tensor
from ...leaves import ConstantNode
from ...node import Node
from ...ops.arithmetic import NegNodeOp, ScalarAddNodeOp, ScalarMultNodeOp, minus, mult, negate, plus
from ...ops.functors import CallbackNodeOp, DifferentiableLambdaNodeOp, LambdaNodeOp
from ...ops.operands import wrapped
from ...ops.product import AffineNodeOp, DotBatchedLegacyNodeOp, DotBatchedNodeOp, DotNodeOp
from ...ops.shape import ReshapeNodeOp, TransposeNodeOp, reshape, transpose
from ...running.interpreter import Interpreter
from ...structure import INPUT, Structure
from ..patterns import Any, Constant, Field, Label, Match, Op, Repeat, known_value
from ..rule import again, rule

X, A, B = Label("x"), Label("a"), Label("b")


def single(array: object) -> bool:
    """Whether a constant is one number. Larger constants do not match: a mask of ones changes from batch to
    batch."""
    return getattr(array, "size", 0) == 1


ONE, ZERO = Constant(value=1, where=single), Constant(value=0, where=single)


@rule(Op(ScalarMultNodeOp, Op(ScalarMultNodeOp, X, c=Field("first")), c=Field("second")))
def scalar_products(m: Match) -> Node | None:
    """``(x * 2) * 3`` is ``x * 6``."""
    c = product(m.x, m.first, m.second)
    return None if c is None else mult(m.x, wrapped(m.x, c))


@rule(Op(ScalarAddNodeOp, Op(ScalarAddNodeOp, X, c=Field("first")), c=Field("second")))
def scalar_sums(m: Match) -> Node | None:
    """``(x + 1) + 2`` is ``x + 3``."""
    c = sum_of(m.x, m.first, m.second)
    return None if c is None else plus(m.x, wrapped(m.x, c))


@rule(Op(ScalarMultNodeOp, X, c=1), Op(ScalarAddNodeOp, X, c=0), X * ONE, X + ZERO, X - ZERO, X / ONE)
def neutral_numbers(m: Match) -> Node | None:
    """``x * 1``, ``x / 1``, ``x + 0`` and ``x - 0`` are ``x``, if nothing is broadcast."""
    return m.x if m.x.spec is m.root.spec else None


@rule(Op(ScalarMultNodeOp, X, c=-1))
def minus_one(m: Match) -> Node:
    """``x * -1`` is ``-x``."""
    return negate(m.x)


@rule(Op(NegNodeOp, -X))
def double_negation(m: Match) -> Node:
    """``-(-x)`` is ``x``."""
    return m.x


@rule(-Op(ScalarMultNodeOp, X, c=Field("c")), Op(ScalarMultNodeOp, Op(NegNodeOp, X), c=Field("c")))
def negated_products(m: Match) -> Node:
    """``-(x * 2)`` and ``(-x) * 2`` are ``x * -2``."""
    return mult(m.x, wrapped(m.x, -m.c))


@rule(-(A - B))
def negated_differences(m: Match) -> Node:
    """``-(a - b)`` is ``b - a``."""
    return minus(m.b, m.a)


@rule(A + -B)
def added_negations(m: Match) -> Node:
    """``a + (-b)`` is ``a - b``."""
    return minus(m.a, m.b)


@rule(A - -B)
def subtracted_negations(m: Match) -> Node:
    """``a - (-b)`` is ``a + b``."""
    return plus(m.a, m.b)


ALGEBRA = (
    scalar_products,
    scalar_sums,
    neutral_numbers,
    minus_one,
    double_negation,
    negated_products,
    negated_differences,
    added_negations,
    subtracted_negations,
)


def is_normal(x: Node, number: float) -> bool:
    """Whether an operator on ``x`` can hold a number: zero, or neither overflowing nor underflowing."""
    if not x.value_type.is_float:
        return abs(number) < 2**63
    limits = jnp.finfo(x.value_type.dtype)
    return number == 0 or float(limits.tiny) <= abs(number) <= float(limits.max)


def product(x: Node, *factors: float) -> float | None:
    """The product of factors of ``x``; ``None`` where it underflows, overflows or is not a number."""
    total = math.prod(factors)
    safe = is_normal(x, total) and all(is_normal(x, factor) for factor in factors)
    return total if safe and (total != 0 or 0 in factors) else None


def sum_of(x: Node, a: float, b: float) -> float | None:
    """The sum of numbers added to ``x``; ``None`` where that would undo an intended rounding.

    ``(x + 2**23) - 2**23`` rounds a float32 to a whole number.
    """
    if x.value_type.is_float and a * b < 0:
        bound = 1 / math.sqrt(float(jnp.finfo(x.value_type.dtype).eps))
        if max(abs(a), abs(b)) > bound:
            return None
    return a + b if is_normal(x, a + b) and is_normal(x, a) and is_normal(x, b) else None


_RESHAPES = Repeat(Op(ReshapeNodeOp, Label("next")), "next", X)


@rule(Op(ReshapeNodeOp, _RESHAPES))
def reshapes(m: Match) -> Node:
    """Several reshapes become the last one."""
    return reshape(m.x, m.root.shape)


@rule(Op(ReshapeNodeOp, X, where=lambda node: node.shape == node.child(0).shape))
def useless_reshapes(m: Match) -> Node:
    """A reshape to the same shape is dropped."""
    return m.x


@rule(Op(TransposeNodeOp, Op(TransposeNodeOp, X, axes=Field("first")), axes=Field("second")))
def transposes(m: Match) -> Node:
    """Two transposes become one, or none."""
    axes = tuple(m.first[i] for i in m.second)
    return m.x if axes == tuple(range(len(axes))) else transpose(m.x, axes)


@rule(Op(TransposeNodeOp, X, axes=lambda axes: axes == tuple(range(len(axes)))))
def useless_transposes(m: Match) -> Node:
    """A transpose that keeps the order of axes is dropped."""
    return m.x


SHAPES = (reshapes, useless_reshapes, transposes, useless_transposes)


FREE_BYTES = 2**16
"""A folded constant of up to this size may be larger than its operands."""

OPAQUE = (CallbackNodeOp, DifferentiableLambdaNodeOp, LambdaNodeOp)
"""Users' functions, which may have side effects."""


def _foldable(node: Node) -> bool:
    if not node.children or node.trainable or isinstance(node, OPAQUE) or isinstance(node.spec, tuple):
        return False
    values = [known_value(child) for child in node.children]
    if any(value is None for value in values):
        return False
    spec = node.spec
    size = int(np.prod(spec.shape, dtype=np.int64)) * spec.type.dtype.itemsize
    return size <= max(FREE_BYTES, sum(value.nbytes for value in values if value is not None))


@rule(Any(_foldable))
def constant_folding(m: Match) -> ConstantNode:
    """An operator on constants is a constant, unless that would be far larger."""
    node, graph = m.root, m.root.graph
    leaves = [known_value(child) for child in node.children]
    rows = [(INPUT, child.spec, False) for child in node.children]
    structure = Structure((*rows, (node.operator, *range(len(rows)))))
    interpreter = Interpreter(structure, leaves.__getitem__, "rules", graph.device, {})
    value = np.asarray(interpreter.value(len(rows)))
    return graph.constant(node.shape, from_tensor(value), node.value_type)


FOLDING = (constant_folding,)


PRODUCTS_OF_TWO = (DotNodeOp, DotBatchedNodeOp, DotBatchedLegacyNodeOp)


def swaps_matrices(node: Node) -> bool:
    """Whether a transpose swaps the last two axes and no others."""
    axes = node.operator.axes
    return len(axes) >= 2 and axes == (*range(len(axes) - 2), len(axes) - 1, len(axes) - 2)


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
