"""The cache of compiled programs, asked by several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mgraph.running.programs import ProgramCache

X = np.ones(3, np.float32)
SECONDS = 60


def test_what_two_threads_want_is_compiled_once() -> None:
    cache, started, traced = ProgramCache(4), threading.Event(), []

    def doubled(x: Any) -> Any:
        traced.append(x.shape)
        assert started.wait(SECONDS)
        return 2 * x

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(cache.get, "key", "double", doubled, (X,)) for _ in range(2)]
        started.set()
        first, second = (future.result() for future in asked)
    assert first is second and traced == [(3,)]
    np.testing.assert_array_equal(first(X), 2 * X)
    assert (cache.stats().misses, cache.stats().hits) == (1, 1)


def test_two_programs_are_compiled_at_once() -> None:
    """Each waits, while it is traced, until the other is traced as well."""
    cache, both = ProgramCache(4), threading.Barrier(2)

    def plus(number: int) -> Any:
        def function(x: Any) -> Any:
            both.wait(SECONDS)
            return x + number

        return cache.get(number, "plus", function, (X,))(X)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(plus, (1, 2)))
    np.testing.assert_array_equal(found, [X + 1, X + 2])


def test_a_program_that_fails_fails_for_all_and_is_tried_again() -> None:
    cache, waiting = ProgramCache(4), threading.Barrier(2)
    problem = ValueError("no program")

    def failing(x: Any) -> Any:
        waiting.wait(SECONDS)  # until the other thread is about to ask
        raise problem

    def first() -> None:
        cache.get("key", "fails", failing, (X,))

    def second() -> None:
        waiting.wait(SECONDS)
        cache.get("key", "works", jnp.negative, (X,))

    with ThreadPoolExecutor(2) as pool:
        failed, other = pool.submit(first), pool.submit(second)
        assert failed.exception() is problem
        assert other.exception() in (problem, None)  # it waited, or came just after
    np.testing.assert_array_equal(cache.get("key", "works", jnp.negative, (X,))(X), -X)


def test_a_program_that_was_dropped_is_compiled_again() -> None:
    cache = ProgramCache(1)
    for key in ("a", "b", "a"):
        cache.get(key, key, jnp.negative, (X,))
    stats = cache.stats()
    assert (stats.programs, stats.misses, stats.evictions, stats.hits) == (1, 3, 2, 0)


@pytest.mark.parametrize("key", ["a", ("a", 1)])
def test_a_program_is_found_by_equal_keys(key: Any) -> None:
    cache = ProgramCache(2)
    assert cache.get(key, "", jnp.negative, (X,)) is cache.get(key, "", jnp.negative, (X,))
