"""Random draws: keys made from numbers that a program takes as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from . import threefry


def run_draws(seed: int, run: int, ordinals: Sequence[int] = ()) -> np.ndarray:
    """The argument of ``run_key`` for one run, followed by the ``ordinals`` of its random leaves."""
    return np.array([seed >> 32, seed & 0xFFFFFFFF, run, *ordinals], np.uint32)


def run_key(draws: Any) -> jax.Array:
    """The random key of a run from ``draws = [seed, seed, run, ordinal, ordinal, ...]`` (uint32).

    It belongs to the generator ``jax_default_prng_impl``. Threefry starts from the seed itself, other
    generators start from words that threefry draws.
    """
    generator = jax.config.jax_default_prng_impl
    seed = jax.random.wrap_key_data(draws[:2], impl=threefry.NAME)
    if generator != threefry.NAME:
        words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=generator)))
        seed = jax.random.wrap_key_data(jax.random.bits(seed, words.shape, words.dtype), impl=generator)
    return threefry.fold_in(seed, draws[2])


class RowsKey(NamedTuple):
    """The random key of a function that computes some rows of larger arrays, in any order: it draws for each
    row what the function of all rows would. Only draws with a key per row use the row numbers
    (``inits.DeviceSource``); all rows share the other draws."""

    key: jax.Array
    rows: jax.Array
    """Integers: each row's index along the first axis of the drawn array."""


Key = jax.Array | RowsKey


def folded(key: Key, number: Any) -> Key:
    """The key derived from ``key`` and ``number``."""
    if isinstance(key, RowsKey):
        return key._replace(key=threefry.fold_in(key.key, number))
    return threefry.fold_in(key, number)


def random_sources(draws: Any) -> dict[str, Any]:
    """The arguments of ``trace`` for random rows, from the result of ``run_draws`` or ``None``."""
    return {} if draws is None else {"key": run_key(draws), "ordinals": draws[3:]}
