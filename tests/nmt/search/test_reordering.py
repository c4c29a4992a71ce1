"""Decoder states in the order of their hypotheses, against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from nmt.search.beam_loop import LARGE, _gathered, _in_place, reordered

reordering = jax.jit(reordered)


@given(batch=st.integers(1, 4), beam=st.integers(1, 4), seed=st.integers(0, 10_000), share=st.floats(0, 1))
@settings(max_examples=30)
def test_each_living_hypothesis_gets_the_state_of_its_origin(
    batch: int, beam: int, seed: int, share: float
) -> None:
    """Large arrays, which are changed in place, and small ones; some sentences stay as they are."""
    random = np.random.default_rng(seed)
    states = {
        "cache": random.normal(size=(batch * beam, 2, LARGE // 2)).astype(np.float32),
        "few": random.normal(size=(batch * beam, 3)).astype(np.float32),
        "numbers": random.integers(0, 99, (batch * beam, LARGE)).astype(np.int32),
    }
    origins = random.integers(0, beam, (batch, beam)).astype(np.int32)
    living = random.random((batch, beam)) < share
    made = reordering(jax.tree.map(jnp.asarray, states), origins, living)
    rows = np.arange(batch)[:, None] * beam + origins
    for name, state in states.items():
        found, expected = np.asarray(made[name]), state[rows.reshape(-1)]
        np.testing.assert_array_equal(found[living.reshape(-1)], expected[living.reshape(-1)])


def test_a_sentence_whose_hypotheses_are_done_is_not_touched() -> None:
    cache = jnp.arange(6 * LARGE, dtype=jnp.float32).reshape(6, LARGE)
    origins = jnp.asarray([[1, 0], [1, 0], [1, 0]])
    made = reordering(cache, origins, jnp.asarray([[True, True], [False, False], [False, True]]))
    np.testing.assert_array_equal(made, cache[np.array([1, 0, 2, 3, 4, 4])])


def test_every_platforms_way_is_the_same() -> None:
    random = np.random.default_rng(0)
    caches = [jnp.asarray(random.normal(size=(12, 5)).astype(np.float32))]
    chosen = random.integers(0, 3, (4, 3)).astype(np.int32)
    rows = (np.arange(4)[:, None] * 3 + chosen).reshape(-1)
    for way in (_in_place, _gathered):
        np.testing.assert_array_equal(way(caches, jnp.asarray(chosen), rows)[0], caches[0][rows])
