"""JAX's setting chooses the random generator: threefry's draws never change, others draw differently."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, compile_stats, inits

KEPT = ["100011111011", "011111011101", "111111110010"]
"""What dropout keeps in three runs under threefry, in all versions."""


def masks(runs: int = 3, seed: int = 7) -> list[str]:
    """What ``dropout(ones, 0.3)`` keeps in each run of a graph."""
    graph = ExpressionGraph(seed=seed)
    found = []
    for _ in range(runs):
        graph.clear()
        y = mgraph.dropout(graph.constant((12,), inits.ones()), 0.3)
        graph.forward()
        found.append("".join(str(int(x > 0)) for x in np.asarray(y.val())))
    return found


def test_threefry_draws_what_it_always_drew() -> None:
    assert masks() == KEPT


@pytest.mark.parametrize("init", [inits.uniform(), inits.normal()])
@pytest.mark.sampled(every=2)
def test_larger_shapes_begin_with_the_same_numbers(init: inits.Initializer) -> None:
    def drawn(*shape: int) -> np.ndarray:
        graph = ExpressionGraph(seed=7)
        node = graph.constant(shape, init)
        graph.forward()
        return np.asarray(node.val())

    weights = drawn(4, 2, 5, 7)  # as in attention, where three axes change from batch to batch
    np.testing.assert_array_equal(weights[:3, :, :2, :6], drawn(3, 2, 2, 6))
    np.testing.assert_array_equal(drawn(5, 2, 3)[:2], drawn(2, 2, 3))
    assert len(np.unique(weights)) == weights.size


@pytest.mark.parametrize("generator", ["rbg", "unsafe_rbg"])
def test_another_generator_has_programs_and_draws_of_its_own(generator: str) -> None:
    masks()
    before = compile_stats()
    with jax.default_prng_impl(generator):
        found = masks()
        assert (compile_stats() - before).misses > 0
        assert len({*found, *KEPT}) == 6
        assert masks() == found
        assert masks(seed=8) != found
    before = compile_stats()
    assert masks() == KEPT
    assert (compile_stats() - before).misses == 0


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.sampled("threefry2x32")
def test_backward_and_functions_see_the_draws_of_forward(generator: str) -> None:
    with jax.default_prng_impl(generator):
        graph = ExpressionGraph(seed=3)
        x = graph.param("x", (40,), inits.ones())
        y = mgraph.dropout(x, 0.5)
        mgraph.sum(y)
        graph.backprop()
        np.testing.assert_array_equal(x.grad(), y.val())
        assert 4 < np.count_nonzero(x.grad()) < 36
        function = graph.function(y)

        def drawn(seed: int) -> Any:
            return function.pure(graph.params().vals(), key=jax.random.key(seed))

        np.testing.assert_array_equal(jax.jit(drawn)(1), drawn(1))
