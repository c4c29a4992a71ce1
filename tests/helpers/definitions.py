"""Operators by their formulas, in jax.numpy along the last axis, to compare ours with in float64."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def below_top(x: Array) -> Array:
    return x - jax.lax.stop_gradient(jnp.max(x, -1, keepdims=True))


def logsumexp(x: Array) -> Array:
    return jax.nn.logsumexp(x, -1, keepdims=True)


def logsoftmax(x: Array) -> Array:
    distance = below_top(x)
    return distance - logsumexp(distance)


def softmax(x: Array) -> Array:
    return jnp.exp(logsoftmax(x))


def sparsemax(x: Array) -> Array:
    """Bisects the threshold, which lies at most 1 below the largest element, to find the support."""
    z = below_top(x)

    def halved(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = sum(bounds) / 2
        over = jnp.sum(jnp.maximum(z - middle, 0), -1, keepdims=True) > 1
        return jnp.where(over, middle, bounds[0]), jnp.where(over, bounds[1], middle)

    zero = jnp.zeros_like(z[..., :1])
    _, threshold = jax.lax.fori_loop(0, 60, halved, (zero - 1, zero))
    support = z > jax.lax.stop_gradient(threshold)
    inside = jnp.sum(jnp.where(support, z, 0), -1, keepdims=True)
    return jnp.where(support, z - (inside - 1) / jnp.sum(support, -1, keepdims=True), 0)


def cross_entropy(x: Array, labels: Array, alpha: float = 0.0) -> Array:
    log_p = logsoftmax(x)
    gold = jnp.take_along_axis(log_p, labels.reshape(*x.shape[:-1], 1), -1)
    return -(1 - alpha) * gold - alpha * jnp.mean(log_p, -1, keepdims=True)


def softmax_cross_entropy(x: Array, labels: Array) -> Array:
    return -jnp.sum(labels * logsoftmax(x), -1, keepdims=True)


def unlikelihood(x: Array, labels: Array) -> Array:
    named = jnp.arange(x.shape[-1]) == labels.reshape(*x.shape[:-1], 1)
    log_p = logsoftmax(x)
    return -logsumexp(jnp.where(named, -jnp.inf, log_p))


def layer_norm(x: Array, gain: Any = 1.0, shift: Any = 0.0) -> Array:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return rms_norm(centred, gain, shift)


def rms_norm(x: Array, gain: Any = 1.0, shift: Any = 0.0) -> Array:
    return gain * x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-9) + shift


def std(x: Array) -> Array:
    square = jnp.var(x, -1, keepdims=True)
    return jnp.where(square == 0, 0, jnp.sqrt(jnp.where(square == 0, 1, square)))


def logcumsumexp(x: Array) -> Array:
    return jnp.concatenate([logsumexp(x[..., : i + 1]) for i in range(x.shape[-1])], -1)


def highway(y: Array, x: Array, t: Array) -> Array:
    return jax.nn.sigmoid(t) * y + jax.nn.sigmoid(-t) * x


def gru(state: Array, xW: Array, sU: Array, b: Array) -> Array:
    (xr, xz, xh), (sr, sz, s), (br, bz, bh) = (jnp.split(v, 3, -1) for v in (xW, sU, b))
    return highway(state, jnp.tanh(xh + jax.nn.sigmoid(xr + sr + br) * s + bh), xz + sz + bz)


def lstm_cell(cell: Array, xW: Array, sU: Array, b: Array) -> Array:
    f, i, g, _ = jnp.split(xW + sU + b, 4, -1)
    return jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)


def lstm_output(cell: Array, xW: Array, sU: Array, b: Array) -> Array:
    return jax.nn.sigmoid(jnp.split(xW + sU + b, 4, -1)[3]) * jnp.tanh(cell)


def attention(va: Array, context: Array, state: Array) -> Array:
    return (jnp.tanh(context + state) @ va)[None, None, ..., 0]
