"""Products of 8-bit integers, and rounding to few steps, which gradients pass straight through.

A number ``w`` is kept as an integer ``v`` from -127 to 127 with a scale, ``w = scale v``. Weights are
integers before a program runs. The program quantizes the rows that it multiplies with them, each row by its
own largest number, so that a row's result does not depend on other rows. Sums of products are exact, in
int32.

The operators are step functions, whose derivative is zero: the rules here are those of a smooth
``surrogate_ops``.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import flag, whole
from ..cases import Case
from ..errors import ArgumentError, ElementTypeError, ShapeError
from ..node import NaryNodeOp, Node
from ..specs import Spec, Specs, spec_of
from ..types import Type
from .operands import FloatUnaryNodeOp, Gradients, accumulable, axis_in
from .product import matmul

STEPS = 127
"""The largest integer: -128 is not used, so that a number and its negative have the same size."""

NOT_BETWEEN = "distinct"
"""The domain of cases: no odd multiple of 0.1 is halfway between two steps of a larger odd multiple, where
float32 and float64 would round differently."""


def steps_of(x: Array, axis: int | None, most: int = STEPS) -> Array:
    """The size of a step, ``max|x| / most`` over one or all axes, and at least the smallest normal number."""
    largest = jnp.max(jnp.abs(x), axis, keepdims=True)
    return jnp.maximum(largest / most, jnp.finfo(x.dtype).tiny)


class FakeQuantizeNodeOp(FloatUnaryNodeOp):
    type = "fake_quantize"
    color = "yellow"
    bits: int = 8
    axis: int | None = None
    cases = tuple(
        Case(shape, domain=NOT_BETWEEN, bits=bits, axis=axis)
        for shape, bits, axis in (((2, 3, 5), 8, None), ((4, 3), 3, 0), ((2, 3), 2, 1))
    )

    def forward_ops(self, x: Array) -> Array:
        wide = accumulable(x)
        step = steps_of(wide, self.axis, 2 ** (self.bits - 1) - 1)
        return (jnp.rint(wide / step) * step).astype(x.dtype)

    def surrogate_ops(self, x: Array) -> Array:
        return x

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj,)


def fake_quantize(x: Node, bits: int = 8, axis: int | None = None) -> Node:
    """``s round(x / s)`` with the step ``s = max|x| / (2^(bits - 1) - 1)`` over ``axis`` or all of ``x``.

    The result holds only values that fit into ``bits`` bits, still as floating point numbers: for training a
    model that will run in integers. ``affine(fake_quantize(x, axis=-1), fake_quantize(w, axis=0), b)`` is, up
    to rounding, what ``affine_int8`` computes. ``ArgumentError`` for fewer than 2 or more than 16 bits.

    Shape: that of ``x``.
    Gradient: ``adj``, straight through: that of ``x`` itself.
    Source: Bengio et al. 2013. Marian's option ``quantize-bits`` rounds parameters this way after each
    update.
    """
    bits = whole("fake_quantize", "bits", bits)
    if not 2 <= bits <= 16:
        raise ArgumentError(f"fake_quantize: expected 2 to 16 bits, got {bits}")
    return FakeQuantizeNodeOp(x, bits=bits, axis=None if axis is None else axis_in("fake_quantize", x, axis))


def _case(*shapes: tuple[int, ...], **fields: Any) -> Case:
    domains = (NOT_BETWEEN, "int8", "positive", "real", "positive")
    return Case(*shapes, domain=domains[: len(shapes)], **fields)


class AffineInt8NodeOp(NaryNodeOp):
    """Children: x, integers, their scales, then a bias and a multiplier, both optional."""

    type = "affine_int8"
    color = "orange"
    stored_by_loops = True
    index_children = (1,)
    trans_b: bool = False
    static: bool = False
    cases = (
        _case((3, 5), (5, 4), (1, 4)),
        _case((2, 3, 5), (4, 5), (4, 1), (1, 4), trans_b=True),
        _case((3, 5), (5, 4), (1, 1), (4,)),
        _case((2, 3, 5), (2, 4, 5), (2, 4, 1), trans_b=True),
        _case((2, 1, 5), (2, 5, 4), (2, 1, 4)),
        _case((1, 5), (5, 1), (1, 1)),
        _case((3, 5), (5, 4), (1, 4), (1, 4), (1,), static=True),
    )

    def check_types(self, x: Spec, values: Spec, scales: Spec, *others: Spec) -> None:
        super().check_types(x, values, scales, *others)
        if not x.type.is_float or values.type is not Type.int8:
            raise ElementTypeError(
                f"expected a product of floating point numbers and int8, got {x.type} and {values.type}"
            )

    def new_spec(self, x: Spec, values: Spec, scales: Spec, *others: Spec) -> Specs:
        if len(values.shape) < 2 or not x.shape:
            raise ShapeError(f"expected rows and a matrix, got {x.shape} and {values.shape}")
        *batch, k, n = self._in_order(values.shape)
        if x.shape[-1] != k:
            raise ShapeError(
                f"a product needs equal inner sizes, got {x.shape[-1]} and {k} "
                f"in {x.shape} times {values.shape}"
            )
        if not k:
            raise ShapeError(f"rows without elements have no largest one, got {x.shape} times {values.shape}")
        if batch and (len(x.shape) != len(values.shape) or [*x.shape[:-2]] != batch):
            raise ShapeError(f"expected equal batches of matrices, got {x.shape} and {values.shape}")
        allowed = (*batch, 1, n), (*batch, 1, 1)
        if len(scales.shape) != len(values.shape) or self._in_order(scales.shape) not in allowed:
            raise ShapeError(
                "expected a scale for each column of the product, or one, "
                f"got {scales.shape} for {values.shape}{' transposed' if self.trans_b else ''}"
            )
        bias, multiplier = self._split(others)
        if bias is not None and (bias.shape[-1:] != (n,) or math.prod(bias.shape) != n):
            raise ShapeError(f"expected a bias of shape (1, {n}), got {bias.shape}")
        if multiplier is not None and math.prod(multiplier.shape) != 1:
            raise ShapeError(f"expected one number as multiplier, got {multiplier.shape}")
        return spec_of((*x.shape[:-1], n), x.type)

    def forward_ops(self, x: Array, values: Array, scales: Array, *others: Array) -> Array:
        bias, multiplier = self._split(others)
        integers, step = _quantized(accumulable(x), multiplier)
        sums = self._product(integers, values).astype(step.dtype)
        return self._finished(sums * (step * self._row(scales)), bias, x)

    def surrogate_ops(self, x: Array, values: Array, scales: Array, *others: Array) -> Array:
        bias, _ = self._split(others)
        return self._finished(self._smooth(x, values) * self._row(scales), bias, x)

    def backward_ops(
        self, adj: Array, val: Array, x: Array, values: Array, scales: Array, *others: Array
    ) -> Gradients:
        a, row = accumulable(adj), self._row(scales)
        wide = values.astype(a.dtype)
        dx = _matmul(a * row, wide, not self.trans_b).astype(x.dtype)
        by_scale = a * self._smooth(x, values)
        if values.ndim == 2:
            by_scale = by_scale.reshape(math.prod(by_scale.shape[:-1]), by_scale.shape[-1])
        by_scale = jnp.sum(by_scale, -2, keepdims=True).astype(scales.dtype)
        found = [dx, None, by_scale.mT if self.trans_b else by_scale]
        bias, multiplier = self._split(others)
        if bias is not None:
            columns = jnp.sum(a, tuple(range(a.ndim - 1)))
            found.append(columns.astype(bias.dtype).reshape(bias.shape))
        return *found, *([] if multiplier is None else [None])

    def _split(self, others: tuple[Any, ...]) -> tuple[Any, Any]:
        """The bias and the multiplier among the last children, ``None`` for a missing one."""
        multiplier = others[-1] if self.static else None
        rest = others[:-1] if self.static else others
        return (rest[0] if rest else None), multiplier

    def _in_order(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a matrix, or of its scales, with rows before columns."""
        return (*shape[:-2], shape[-1], shape[-2]) if self.trans_b else shape

    def _row(self, scales: Array) -> Array:
        row = accumulable(scales)
        row = row.mT if self.trans_b else row
        return row if row.ndim > 2 else row.reshape(-1)

    def _product(self, integers: Array, values: Array) -> Array:
        """The sums of products, in int32. XLA is slow for a single row, and fast for two."""
        if values.ndim == 2:
            *lead, depth = integers.shape
            sums = self._of_rows(integers.reshape(math.prod(lead), depth), values)
            return sums.reshape(*lead, sums.shape[-1])
        return self._of_rows(integers, values)

    def _of_rows(self, rows: Array, values: Array) -> Array:
        single = rows.shape[-2] == 1
        if single:
            rows = jnp.concatenate([rows, rows], -2)
        batch = tuple(range(rows.ndim - 2))
        inner = (rows.ndim - 1,), (values.ndim - (1 if self.trans_b else 2),)
        sums = jax.lax.dot_general(rows, values, (inner, (batch, batch)), preferred_element_type=jnp.int32)
        return sums[..., :1, :] if single else sums

    def _smooth(self, x: Array, values: Array) -> Array:
        """The product of ``x``, not rounded, and the integers."""
        wide = accumulable(x)
        return _matmul(wide, values.astype(wide.dtype), self.trans_b)

    def _finished(self, y: Array, bias: Array | None, x: Array) -> Array:
        return (y if bias is None else y + accumulable(bias.reshape(-1))).astype(x.dtype)


def _quantized(x: Array, multiplier: Array | None) -> tuple[Array, Array]:
    """The integers of ``x`` and the size of their steps, for each row or from the multiplier."""
    if multiplier is None:
        step = steps_of(x, -1)
        integers = jnp.rint(x / step)
    else:
        wide = accumulable(multiplier).reshape(())
        step = 1 / wide
        integers = jnp.clip(jnp.rint(x * wide), -STEPS, STEPS)
    return integers.astype(jnp.int8), step


def _matmul(a: Array, b: Array, trans_b: bool) -> Array:
    """Rows of any rank by a matrix, or batches of both."""
    if b.ndim > 2:
        return matmul(a, b, False, trans_b)
    y = matmul(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), b, False, trans_b)
    return y.reshape(*a.shape[:-1], y.shape[-1])


def affine_int8(
    x: Node,
    values: Node,
    scales: Node,
    bias: Node | None = None,
    multiplier: Node | None = None,
    trans_b: bool = False,
) -> Node:
    """``x W + bias`` in integers, with the int8 weight ``W = scales * values``.

    Each row of ``x`` becomes ``round(x / s)`` with its own step ``s = max|x| / 127`` and is multiplied by
    ``values`` exactly; the sums are multiplied by ``s * scales``. A ``multiplier``, one number, replaces
    ``1 / s`` for all rows, which are then cut to 127 steps. ``trans_b`` takes ``values`` as (n, k) and its
    ``scales`` as (n, 1). ``values`` may be a batch of matrices, for an ``x`` of the same rank and batch.
    ``ShapeError`` if the sizes do not fit, ``ElementTypeError`` if ``values`` is not int8.

    Shape: (..., k), (k, n), (1, n) or (1, 1), and (1, n) to (..., n); (b, m, k), (b, k, n) and (b, 1, n) to
    (b, m, n).
    Gradient: straight through, that of ``affine(x, W, bias)``: ``adj W^T`` for ``x``, the sum over rows of
    ``adj * (x values)`` for ``scales`` and of ``adj`` for ``bias``; none for ``values`` and the multiplier.
    With ``derivatives="jax"`` it is that of the rounding, zero for ``x``. Not written to ONNX.
    Source: Jacob et al. 2018. Marian's products of ``intgemm8`` round all rows with the same step.
    """
    others = [n for n in (bias, multiplier) if n is not None]
    return AffineInt8NodeOp(
        x,
        values,
        scales,
        *others,
        trans_b=flag("affine_int8", "trans_b", trans_b),
        static=multiplier is not None,
    )
