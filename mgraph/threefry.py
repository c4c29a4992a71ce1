"""Threefry, JAX's default random generator, written out for CPUs: the numbers are those of ``jax.random``.

On CPUs JAX computes threefry's hash in a loop of many kernels, each of which repeats part of the work of
others. Written out, it is one kernel, which takes a third to an eighth of the time. Other platforms, other
generators and ``jax_threefry_partitionable=False`` use ``jax.random``.

Source: Salmon et al. 2011, ``threefry2x32`` with 20 rounds.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .shape import Shape
from .specs import holds_keys

NAME = "threefry2x32"
"""JAX's name of the generator."""
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_ONE = 0x3F800000
"""The bits of 1.0 in float32."""


def fold_in(key: jax.Array, number: Any) -> jax.Array:
    """The key that ``jax.random.fold_in(key, number)`` makes."""
    if not _is_written_out(key):
        return jax.random.fold_in(key, number)
    return jax.random.wrap_key_data(_folded(jax.random.key_data(key), jnp.uint32(number)), impl=NAME)


def uniform(key: jax.Array, shape: Shape) -> jax.Array:
    """The numbers in [0, 1) of ``jax.random.uniform(key, shape, float32)``."""
    if not _is_written_out(key) or math.prod(shape) >= 2**32:
        return jax.random.uniform(key, shape, jnp.float32)
    return _drawn(jax.random.key_data(key), shape)


# Under ``jax.jit`` each of these is traced once for all draws of a program.


@jax.jit
def _folded(words: jax.Array, number: jax.Array) -> jax.Array:
    def on_cpu(words: jax.Array, number: jax.Array) -> jax.Array:
        # A constant would be part of the kernel, and each number's kernel would be compiled. Kernels that
        # draw would make the key again.
        barred = jax.lax.optimization_barrier
        zero, number = barred((jnp.uint32(0), number))
        made: jax.Array = barred(jnp.stack(_hash(words, zero, number)))
        return made

    def elsewhere(words: jax.Array, number: jax.Array) -> jax.Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(words, impl=NAME), number))

    found: jax.Array = jax.lax.platform_dependent(words, number, cpu=on_cpu, default=elsewhere)
    return found


@partial(jax.jit, static_argnums=1)
def _drawn(words: jax.Array, shape: Shape) -> jax.Array:
    def on_cpu(words: jax.Array) -> jax.Array:
        x, y = _hash(words, jnp.uint32(0), jax.lax.iota(jnp.uint32, math.prod(shape)))
        one_to_two = jax.lax.bitcast_convert_type((x ^ y) >> 9 | jnp.uint32(_ONE), jnp.float32)
        # Kernels that read the numbers would otherwise draw them again.
        found: jax.Array = jax.lax.optimization_barrier((one_to_two - 1).reshape(shape))
        return found

    def elsewhere(words: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.wrap_key_data(words, impl=NAME), shape, jnp.float32)

    found: jax.Array = jax.lax.platform_dependent(words, cpu=on_cpu, default=elsewhere)
    return found


def _is_written_out(key: jax.Array) -> bool:
    typed = holds_keys(key)
    return bool(typed and jax.random.key_impl(key) == NAME and jax.config.jax_threefry_partitionable)


def _hash(words: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry's two outputs, for the two words of a key and the two words of a counter."""
    keys = words[0], words[1], words[0] ^ words[1] ^ jnp.uint32(_PARITY)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ (y << rotation | y >> 32 - rotation)
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y
