"""The benchmark of operators: none is missing, and one that differs from its twin is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from benchmarks.operators.twin import Twin, backward, forward
from benchmarks.ops import TWINS, without_twin
from mgraph.cases import Case


def test_every_operator_has_a_twin() -> None:
    assert without_twin() == []
    rows = [str(twin) for twin in TWINS]
    assert len(set(rows)) == len(rows)


def test_a_wrong_twin_is_refused() -> None:
    right = Twin("sin", Case((2, 3)), mgraph.sin, jnp.sin)
    for make in (forward, backward):
        pair = make(right)
        ours, plain = (np.asarray(jax.tree.leaves(run())[0]) for run in pair)
        np.testing.assert_allclose(ours, plain, rtol=1e-5)
    with pytest.raises(ValueError, match="sin: differs from its twin by"):
        forward(right._replace(plain=jnp.cos))
    with pytest.raises(ValueError, match=r"sin: a result of shape \(2, 3\), its twin's has \(6,\)"):
        forward(right._replace(plain=lambda x: jnp.sin(x).reshape(-1)))
