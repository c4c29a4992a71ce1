"""Normalization over the last axis, computed in float32 or wider.

In the rules ``h`` is the normalized row and ``r`` one over its deviation. Marian, on CPU and GPU, multiplies
the gradient by gamma after reducing over the row, not before, which is right only where gamma is constant.
The rule set ``"marian"`` has these formulas, with one exception: Marian's RMS norm without beta, on CPU only,
reduces the row without the gradient, so that padding has gradients, too.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import real
from ..cases import Case
from ..errors import ShapeError
from ..node import Node
from ..rules import derivative
from ..specs import Specs
from .operands import FloatNodeOp, Gradients, accumulable, constant_for, node
from .precision import within
from .reduce import centred


class NormalizationNodeOp(FloatNodeOp):
    """Base of the normalizations. Children: x, then gamma if scaled, then beta if shifted as well."""

    computed_once = True
    eps: float = 1e-9
    runtime_fields = ("eps",)
    cases = (
        Case((2, 3, 5), eps=1e-9),
        Case((2, 3, 5), (1, 5), eps=1e-9),
        Case((2, 3, 5), (1, 5), (1, 5), eps=1e-6),
        Case((3, 5), (1,), (1,), eps=0.1),
    )

    def new_spec(self, x: Any, *scales: Any) -> Specs:
        if not x.shape:
            raise ShapeError("expected rows of at least one element, got a scalar")
        for name, scale in zip(("gamma", "beta"), scales, strict=False):
            *leading, size = scale.shape or (1,)
            if any(n != 1 for n in leading) or size not in (1, *x.shape[-1:]):
                raise ShapeError(f"expected {name} for rows of {x.shape[-1:]}, got {scale.shape}")
        return super().new_spec(x, *scales)

    def normalized(self, x: Array) -> tuple[Array, Array]:
        """``h`` and ``r`` of each row, in float32 or wider."""
        raise NotImplementedError

    def pulled_back(self, dh: Array, h: Array, r: Array) -> Array:
        """The gradient for x, given the gradient for ``h``."""
        raise NotImplementedError

    def forward_ops(self, x: Array, *scales: Array) -> Array:
        h, _ = self.normalized(x)
        return _affine(h, scales).astype(x.dtype)

    def backward_ops(self, adj: Array, val: Array, x: Array, *scales: Array) -> Gradients:
        h, r = self.normalized(x)
        a = accumulable(adj)
        dh = a * accumulable(scales[0]) if scales else a
        return _gradients(a, h, self.pulled_back(dh, h, r), scales, x.dtype)


def _mean(x: Array) -> Array:
    return jnp.mean(x, -1, keepdims=True)


def _affine(h: Array, scales: tuple[Array, ...]) -> Array:
    """``gamma h + beta``, where both are optional."""
    for scale, combine in zip(scales, (jnp.multiply, jnp.add), strict=False):
        h = combine(h, accumulable(scale))
    return h


def _gradients(a: Array, h: Array, dx: Array, scales: tuple[Array, ...], to: Any) -> Gradients:
    """Gradients for x and, if they are given, gamma and beta, in the element type ``to``. On a row without
    variance, the gradient for x is up to ``1 / sqrt(eps)`` times the adjoint, which may overflow float16.
    """
    return tuple(g.astype(to) for g in (within(dx, to), a * h, a)[: 1 + len(scales)])


class LayerNormalizationOp(NormalizationNodeOp):
    type = "layer_normalization"

    def normalized(self, x: Array) -> tuple[Array, Array]:
        deviations = centred(accumulable(x), -1)
        r = jax.lax.rsqrt(_mean(deviations * deviations) + self.eps)
        return deviations * r, r

    def pulled_back(self, dh: Array, h: Array, r: Array) -> Array:
        return r * (dh - _mean(dh) - h * _mean(dh * h))


def layer_norm(x: Node, gamma: Node | None = None, beta: Node | None = None, eps: float = 1e-9) -> Node:
    """``y = gamma h + beta`` with ``h = (x - mean(x)) / sqrt(var(x) + eps)`` over the last axis.

    ``x``: (..., n); ``gamma``, ``beta``: (1, n) or (n,), (1,) for all columns alike, or left out. The
    variance divides by n. ``ShapeError`` if gamma or beta has another size.

    Shape: broadcast of all: that of ``x``, unless gamma or beta has more axes.
    Gradient: ``(d - mean(d) - h mean(d h)) / s`` for ``x``, in float16 cut to its largest number, with
    ``d = gamma adj`` and s the root; ``adj h`` for ``gamma``, ``adj`` for ``beta``.
    Differs: Marian multiplies by gamma after the means, not before, which is right only where gamma is
    constant; so does the rule set ``"marian"``.
    Source: Ba et al. 2016; Marian, ``layerNorm``.
    """
    return _normalize(LayerNormalizationOp, x, gamma, beta, eps)


class RMSNormalizationOp(NormalizationNodeOp):
    type = "rms_normalization"

    def normalized(self, x: Array) -> tuple[Array, Array]:
        x = accumulable(x)
        r = jax.lax.rsqrt(_mean(x * x) + self.eps)
        return x * r, r

    def pulled_back(self, dh: Array, h: Array, r: Array) -> Array:
        return r * (dh - h * _mean(dh * h))


@derivative(LayerNormalizationOp, "marian")
@derivative(RMSNormalizationOp, "marian")
def _(self: NormalizationNodeOp, adj: Array, val: Array, x: Array, *scales: Array) -> Gradients:
    h, r = self.normalized(x)
    a = accumulable(adj)
    dx = self.pulled_back(a, h, r)
    return _gradients(a, h, dx * accumulable(scales[0]) if scales else dx, scales, x.dtype)


def rms_norm(x: Node, gamma: Node | None = None, beta: Node | None = None, eps: float = 1e-9) -> Node:
    """``y = gamma h + beta`` with ``h = x / sqrt(mean(x^2) + eps)`` over the last axis.

    Children and errors as for ``layer_norm``.

    Shape: broadcast of all: that of ``x``, unless gamma or beta has more axes.
    Gradient: ``(d - h mean(d h)) / s`` for ``x``, in float16 cut to its largest number, with
    ``d = gamma adj`` and s the root; ``adj h`` for ``gamma``, ``adj`` for ``beta``.
    Differs: Marian multiplies by gamma after the mean, not before, which is right only where gamma is
    constant; so does the rule set ``"marian"``. Without beta, on CPU, Marian has ``mean(h)`` in place of
    ``mean(d h)``; no rule set does.
    Source: Zhang and Sennrich 2019; Marian, ``rmsNorm``.
    """
    return _normalize(RMSNormalizationOp, x, gamma, beta, eps)


def _normalize(
    cls: type[NormalizationNodeOp], x: Node, gamma: Node | None, beta: Node | None, eps: float
) -> Node:
    eps = real(cls.type, "eps", eps)
    if gamma is None and beta is not None:
        gamma = constant_for(node(cls.type, x), 1, part=True)
    return cls(x, *(scale for scale in (gamma, beta) if scale is not None), eps=eps)
