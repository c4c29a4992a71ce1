"""Threefry written out: the numbers of ``jax.random``, in one kernel on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgraph import threefry
from mgraph.platforms import compiler_wishes

KEY = jax.random.key(12345)


def words(key: jax.Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


@settings(max_examples=15, deadline=None)
@given(shape=st.lists(st.integers(0, 5), max_size=5).map(tuple), seed=st.integers(0, 2**32 - 1))
def test_numbers_are_those_of_jax(shape: tuple[int, ...], seed: int) -> None:
    key = jax.random.key(seed)
    drawn = threefry.uniform(key, shape)
    assert drawn.dtype == jnp.float32
    np.testing.assert_array_equal(drawn, jax.random.uniform(key, shape, jnp.float32))


@pytest.mark.parametrize("number", [0, 1, 2**31, 2**32 - 1, np.uint32(7), np.int64(8), jnp.int32(9)])
def test_keys_are_those_of_jax(number: Any) -> None:
    expected = words(jax.random.fold_in(KEY, number))
    for folded in (threefry.fold_in(KEY, number), jax.jit(lambda key: threefry.fold_in(key, number))(KEY)):
        np.testing.assert_array_equal(words(folded), expected)


def test_batches_of_keys() -> None:
    keys = jax.random.split(KEY, 3)

    def both(fold: Callable[..., jax.Array], draw: Callable[..., jax.Array]) -> tuple[Any, Any]:
        folded = jax.vmap(jax.vmap(fold, (None, 0)), (0, None))(keys, jnp.arange(4))
        return words(folded), jax.vmap(lambda key: draw(key, (5, 2)))(folded.reshape(-1))

    for mine, jaxs in zip(
        both(threefry.fold_in, threefry.uniform), both(jax.random.fold_in, jax.random.uniform), strict=True
    ):
        np.testing.assert_array_equal(mine, jaxs)


def test_other_generators_and_settings_are_left_to_jax() -> None:
    for key in (jax.random.key(1, impl="rbg"), jax.random.PRNGKey(1)):
        np.testing.assert_array_equal(threefry.uniform(key, (3,)), jax.random.uniform(key, (3,)))
        folded = threefry.fold_in(key, 2)
        assert folded.dtype == key.dtype
        np.testing.assert_array_equal(words(folded), words(jax.random.fold_in(key, 2)))
    with jax.threefry_partitionable(False):
        np.testing.assert_array_equal(threefry.uniform(KEY, (7,)), jax.random.uniform(KEY, (7,)))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(threefry.uniform(KEY, (7,)), jax.random.uniform(KEY, (7,), jnp.float32))


def test_programs_for_cpus_have_no_loops_and_others_draw_by_jax() -> None:
    def drawn(key: jax.Array) -> list[jax.Array]:
        return [threefry.uniform(threefry.fold_in(key, i), (8, 16)) for i in range(3)]

    compiled = jax.jit(drawn).lower(KEY).compile(compiler_wishes("cpu")).as_text()
    assert "while(" not in compiled and compiled.count(" fusion(") <= 2 * 3 + 2
    texts = {
        platform: jax.export.export(jax.jit(drawn), platforms=[platform])(KEY).mlir_module()
        for platform in ("cpu", "cuda", "tpu")
    }
    assert [p for p, text in texts.items() if "optimization_barrier" in text] == ["cpu"]
