"""Random draws: keys from numbers that are arguments of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np


def run_draws(seed: int, run: int, ordinals: Sequence[int] = ()) -> np.ndarray:
    """The argument of ``run_key`` for one run and its random leaves ``ordinals``."""
    return np.array([seed >> 32, seed & 0xFFFFFFFF, run, *ordinals], np.uint32)


_THREEFRY = "threefry2x32"


def run_key(draws: Any) -> jax.Array:
    """The random key of a run from ``draws = [seed, seed, run, ordinal, ordinal, ...]`` (uint32).

    It is of the generator ``jax_default_prng_impl``. Threefry starts from the seed itself, others from words
    that threefry draws.
    """
    seed, generator = jax.random.wrap_key_data(draws[:2], impl=_THREEFRY), jax.config.jax_default_prng_impl
    if generator != _THREEFRY:
        words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=generator)))
        seed = jax.random.wrap_key_data(jax.random.bits(seed, words.shape, words.dtype), impl=generator)
    return jax.random.fold_in(seed, draws[2])


def random_sources(draws: Any) -> dict[str, Any]:
    """The arguments of ``trace`` for random rows, from the result of ``run_draws`` or ``None``."""
    return {} if draws is None else {"key": run_key(draws), "ordinals": draws[3:]}
