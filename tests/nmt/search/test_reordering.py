"""Decoder states are put in the order of their hypotheses, compared with NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.search.lane_loop import reordered

reordering = jax.jit(reordered)


@given(batch=st.integers(1, 4), beam=st.integers(2, 4), seed=st.integers(0, 10_000))
@settings(max_examples=30)
def test_each_hypothesis_gets_the_state_of_its_origin(batch: int, beam: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    states = {
        "vectors": random.normal(size=(batch * beam, 3)).astype(np.float32),
        "numbers": random.integers(0, 99, (batch * beam,)).astype(np.int32),
    }
    shared = random.normal(size=(batch, 5, 2)).astype(np.float32)
    origins = random.integers(0, beam, (batch, beam)).astype(np.int32)
    made = reordering(jax.tree.map(jnp.asarray, states | {"shared": shared}), origins)
    rows = np.arange(batch)[:, None] * beam + origins
    for name, state in states.items():
        np.testing.assert_array_equal(made[name], state[rows.reshape(-1)])
    np.testing.assert_array_equal(made["shared"], shared)
