"""Wrong gradients from the histories of public projects, rewritten as node classes.

Each class names the thread in which the mistake was found. ``custom_vjp`` turns a class into a JAX function
with the same rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgraph import NaryNodeOp, UnaryNodeOp

GITHUB = "https://github.com/"


class NormalDensity(NaryNodeOp):
    """A wrong sign: in the gradient of a normal distribution's log density with respect to its covariance.

    A typo had kept the unit tests from running.
    """

    type = "normal_density"
    thread = GITHUB + "HIPS/autograd/issues/401"

    def forward_ops(self, covariance, deviation):
        squared = deviation @ jnp.linalg.solve(covariance, deviation.T)
        return -0.5 * (jnp.linalg.slogdet(covariance)[1] + squared)

    def backward_ops(self, adj, val, covariance, deviation):
        inverse = jnp.linalg.inv(covariance)
        pulled = deviation @ inverse
        by_covariance = 0.5 * (inverse.T - (inverse @ deviation.T @ pulled).T)
        return adj * by_covariance, -0.5 * adj * (pulled + deviation @ inverse.T)


class LayerNorm(NaryNodeOp):
    """The mean of the adjoint is subtracted twice. The test allowed an error of 0.5."""

    type = "layer_norm_twice"
    thread = GITHUB + "tenstorrent/tt-metal/issues/53204"

    def forward_ops(self, x, gamma):
        return self._normalized(x)[0] * gamma

    def backward_ops(self, adj, val, x, gamma):
        h, r = self._normalized(x)
        d = adj * gamma
        dx = r * (d - 2 * _mean(d) - h * _mean(d * h))
        return dx, adj * h

    @staticmethod
    def _normalized(x):
        centred = x - _mean(x)
        r = jax.lax.rsqrt(_mean(centred**2) + 1e-6)
        return centred * r, r


def _mean(x):
    return jnp.mean(x, -1, keepdims=True)


class Huber(UnaryNodeOp):
    """The adjoint is ignored: whatever follows the loss has no effect. The fix also gave the test a random
    adjoint."""

    type = "huber"
    thread = GITHUB + "chainer/chainer/issues/1175"

    def forward_ops(self, x):
        size = jnp.abs(x)
        return jnp.where(size <= 1, 0.5 * x * x, size - 0.5)

    def backward_ops(self, adj, val, x):
        return (jnp.clip(x, -1, 1),)


class Gather(NaryNodeOp):
    """Adjoints are written where they should be added: wrong where an index occurs twice."""

    type = "gather"
    thread = GITHUB + "pytorch/pytorch/issues/1631"
    index_children = (1,)

    def forward_ops(self, x, i):
        return x[i]

    def backward_ops(self, adj, val, x, i):
        return jnp.zeros_like(x).at[i].set(adj), None


class PRelu(NaryNodeOp):
    """A wrong axis: channel weights (1, c, 1) are treated as weights of the last axis.

    Right for (n, c), an error for most (n, c, k), and silently wrong for (n, c, c).
    """

    type = "prelu"
    thread = GITHUB + "flagos-ai/FlagGems/issues/4992"

    def forward_ops(self, x, weight):
        return jnp.where(x > 0, x, weight * x)

    def backward_ops(self, adj, val, x, weight):
        return jnp.where(x > 0, adj, weight.reshape(-1) * adj), jnp.where(x > 0, 0, adj * x)


class CumulativeProduct(UnaryNodeOp):
    """Wrong at one value: 0 / 0 is replaced by 0, but the gradient of a factor that is zero is not zero."""

    type = "cumulative_product"
    thread = GITHUB + "tensorflow/tensorflow/issues/119430"

    def forward_ops(self, x):
        return jnp.cumprod(x, -1)

    def backward_ops(self, adj, val, x):
        later = jnp.flip(jnp.cumsum(jnp.flip(adj * val, -1), -1), -1)
        return (jnp.where(x == 0, 0, later / jnp.where(x == 0, 1, x)),)


class TotalVariation(NaryNodeOp):
    """Wrong at ties: the slope of |p - q| has two cases, and p = q falls into the second.

    A student that starts as a copy of its teacher has zero loss, and this gradient everywhere. There the
    slope is 0.5 by JAX's convention, and 0 by central differences.
    """

    type = "total_variation"
    thread = GITHUB + "linkedin/Liger-Kernel/issues/1373"

    def forward_ops(self, p, q):
        return 0.5 * jnp.abs(p - q)

    def backward_ops(self, adj, val, p, q):
        slope = jnp.where(p > q, 0.5, -0.5) * adj
        return slope, -slope


class CrossEntropy(NaryNodeOp):
    """Wrong in second order only: the gradient was computed along with the value and kept as a constant, so
    Hessians are zero."""

    type = "cross_entropy_once"
    thread = GITHUB + "tensorflow/tensorflow/issues/7403"

    def forward_ops(self, logits, labels):
        return -jnp.sum(labels * jax.nn.log_softmax(logits), -1, keepdims=True)

    def backward_ops(self, adj, val, logits, labels):
        kept = jax.lax.stop_gradient(jax.nn.softmax(logits) * jnp.sum(labels, -1, keepdims=True) - labels)
        return adj * kept, -adj * jax.nn.log_softmax(logits)


class SteepSigmoid(UnaryNodeOp):
    """Wrong in float32 only: exp(-25 x) overflows below x = -3.5, and the gradient is NaN."""

    type = "steep_sigmoid"
    thread = GITHUB + "jeshraghian/snntorch/issues/427"

    def forward_ops(self, x):
        return jax.nn.sigmoid(25 * x)

    def backward_ops(self, adj, val, x):
        small = jnp.exp(-25 * x)
        return (adj * 25 * small / (small + 1) ** 2,)


class Scaled(NaryNodeOp):
    """Wrong in bfloat16 only: the gradient of a weight is summed row by row in the weight's type, and is off
    by several per cent after a few hundred rows."""

    type = "scaled"
    thread = GITHUB + "karpathy/llm.c/issues/428"

    def forward_ops(self, h, weight):
        return h * weight

    def backward_ops(self, adj, val, h, weight):
        total, _ = jax.lax.scan(lambda t, row: (t + row, None), jnp.zeros_like(weight[0]), adj * h)
        return adj * weight, total[None]


MEMORY = itertools.count()
"""What the next call finds in uninitialized memory: zeros at first."""


class Truncated(UnaryNodeOp):
    """Differs from call to call: the rule never writes the gradient of rows that the forward cuts off, which
    then is what was in memory, zeros at first."""

    type = "truncated"
    thread = GITHUB + "pytorch/FBGEMM/pull/5754"

    def forward_ops(self, x):
        return x[:2]

    def backward_ops(self, adj, val, x):
        rest = jax.ShapeDtypeStruct(x[2:].shape, x.dtype)
        found = jax.pure_callback(_unwritten, rest, jax.lax.stop_gradient(x[2:]), vmap_method="sequential")
        return (jnp.concatenate([adj, found]),)


def _unwritten(like):
    return np.full_like(like, next(MEMORY))


class Sinc(UnaryNodeOp):
    """The rule is right and JAX is wrong: like ``jnp.sinc`` once, this has no second derivative at zero in
    JAX, which differentiates the constant there."""

    type = "sinc"
    thread = GITHUB + "jax-ml/jax/issues/5054"

    def forward_ops(self, x):
        return jnp.where(x == 0, 1, jnp.sin(jnp.pi * x) / jnp.where(x == 0, 1, jnp.pi * x))

    def backward_ops(self, adj, val, x):
        near = jnp.abs(x) < 0.01
        away = jnp.where(near, 1, x)
        slope = (jnp.cos(jnp.pi * away) - self.forward_ops(away)) / away
        square = (jnp.pi * x) ** 2
        series = -x * jnp.pi**2 * (1 / 3 - square / 30 + square**2 / 840)
        return (adj * jnp.where(near, series, slope),)


def custom_vjp(operator: type[NaryNodeOp]) -> Callable[..., Any]:
    """The operator as a JAX function with the same rule."""
    node = object.__new__(operator)

    def gradients(kept: Any, adj: Any) -> Any:
        value, children = kept
        found = node.backward_ops(adj, value, *children)
        return tuple(None if g is None else _summed(g, c.shape) for g, c in zip(found, children, strict=True))

    def forward(*children: Any) -> Any:
        value = node.forward_ops(*children)
        return value, (value, children)

    function = jax.custom_vjp(node.forward_ops)
    function.defvjp(forward, gradients)
    return function


def _summed(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the axes along which the child was broadcast, which custom_vjp leaves to the rule."""
    axes = [k for k, (n, m) in enumerate(zip(gradient.shape, shape, strict=True)) if n != m]
    return jnp.sum(gradient, axes, keepdims=True)


_random = np.random.default_rng(5)
_probabilities = _random.dirichlet(np.ones(4), 3)
_deviation = _random.standard_normal((1, 3))

ORDINARY: dict[type[NaryNodeOp], tuple[np.ndarray, ...]] = {
    NormalDensity: (np.eye(3) + 0.3, _deviation),
    LayerNorm: (_random.standard_normal((3, 5)), _random.standard_normal((1, 5))),
    Huber: (np.array([[0.3, -2.0, 1.7, -0.6]]),),
    Gather: (_random.standard_normal((4, 3)), np.array([2, 0, 3], np.uint32)),
    PRelu: (_random.standard_normal((5, 3)), _random.standard_normal((1, 3))),
    CumulativeProduct: (np.array([[2.0, 0.5, 3.0, -1.0]]),),
    TotalVariation: (_probabilities, _random.dirichlet(np.ones(4), 3)),
    CrossEntropy: (_random.standard_normal((3, 4)), _probabilities),
    SteepSigmoid: (_random.standard_normal((2, 3)),),
    Scaled: (_random.standard_normal((3, 2)), _random.standard_normal((1, 2))),
    Truncated: (_random.standard_normal((4, 3)),),
    Sinc: (np.array([0.4, 0.1, -1.3]),),
}
"""Values that a test would draw."""

TELLING: dict[type[NaryNodeOp], tuple[np.ndarray, ...]] = {
    Gather: (ORDINARY[Gather][0], np.array([2, 0, 2], np.uint32)),
    PRelu: (_random.standard_normal((2, 3, 3)), _random.standard_normal((1, 3, 1))),
    CumulativeProduct: (np.array([[2.0, 0.0, 3.0, -1.0]]),),
    TotalVariation: (_probabilities, _probabilities),
    SteepSigmoid: (np.array([[0.1, -5.0]]),),
    Sinc: (np.array([0.4, 0.0, -1.3]),),
}
"""Values that show the mistake, if not all values do."""
