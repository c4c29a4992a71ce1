"""The cache of compiled programs, asked by several threads."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from mgraph import DeviceError, OutOfMemoryError, Plan, compile_stats, compiled
from mgraph.running import programs
from mgraph.running.programs import ProgramCache
from tests.helpers.fresh import python

X = np.ones(3, np.float32)
SECONDS = 60
FULL = """
import resource
import jax.numpy as jnp
from mgraph import OutOfMemoryError
from mgraph.running.programs import ProgramCache

program, kept = ProgramCache(1).get("key", "zeros"), []
def more():
    kept.append(program.run(lambda x: jnp.zeros(1 << 24) + x, 1.0).block_until_ready())
more()
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 29),) * 2)
try:
    while True:
        more()
except OutOfMemoryError as error:
    print(error)
"""


def test_what_two_threads_want_is_compiled_once() -> None:
    cache, started, traced = ProgramCache(4), threading.Event(), []

    def doubled(x: Any) -> Any:
        traced.append(x.shape)
        assert started.wait(SECONDS)
        return 2 * x

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(cache.get("key", "double").run, doubled, X) for _ in range(2)]
        started.set()
        np.testing.assert_array_equal([future.result() for future in asked], [2 * X, 2 * X])
    assert traced == [(3,)]
    assert (cache.stats().misses, cache.stats().hits) == (1, 1)


def test_two_programs_are_compiled_at_once(monkeypatch) -> None:
    """Each compilation waits until the other one has begun, too."""
    cache, both = ProgramCache(4), threading.Barrier(2)

    class Lowered:
        def compile(self) -> None:
            both.wait(SECONDS)

    class Jitted:
        def lower(self, *args: Any) -> Lowered:
            return Lowered()

    monkeypatch.setattr(programs.Program, "_jit", lambda program, options: Jitted())
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda key: cache.get(key, "none").prepare(jnp.negative, X), "ab"))


def test_a_program_that_fails_fails_for_all_and_is_tried_again() -> None:
    cache, waiting = ProgramCache(4), threading.Barrier(2)
    problem = ValueError("no program")

    def failing(x: Any) -> Any:
        waiting.wait(SECONDS)  # until the other thread is about to ask
        raise problem

    def second() -> None:
        waiting.wait(SECONDS)
        cache.get("key", "works").run(jnp.negative, X)

    with ThreadPoolExecutor(2) as pool:
        failed, other = pool.submit(cache.get("key", "fails").run, failing, X), pool.submit(second)
        assert failed.exception() is problem
        assert other.exception() in (problem, None)  # it waited, or came just after
    np.testing.assert_array_equal(cache.get("key", "works").run(jnp.negative, X), -X)


def test_xlas_errors_are_told_from_those_of_functions() -> None:
    def run(error: Exception) -> None:
        def failing(x: Any) -> Any:
            raise error

        ProgramCache(1).get("key", "double").run(failing, X)

    for kind in (ValueError, JaxRuntimeError):  # JAX raises the first if the program has run before
        with pytest.raises(OutOfMemoryError, match="^double: Out of memory allocating 9 bytes$"):
            run(kind("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nMore of it"))
        with pytest.raises(JaxRuntimeError, match="^UNKNOWN: Gloo all-reduce failed"):
            run(kind("UNKNOWN: Gloo all-reduce failed"))
    with pytest.raises(ValueError, match="^expected: a number"):
        run(ValueError("expected: a number"))
    with pytest.raises(DeviceError, match=r"^double: its arrays are on different devices; .*set_device\(\)"):
        run(ValueError("Received incompatible devices for jitted computation. Got argument x"))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
def test_memory_that_ends_while_a_program_runs_again_and_again() -> None:
    said = python(FULL, JAX_PLATFORMS="cpu")
    assert said == f"zeros: Out of memory allocating {4 << 24} bytes\n"


def test_threads_trace_one_after_the_other() -> None:
    cache, both, inside = ProgramCache(4), threading.Barrier(2), []

    def negative(x: Any) -> Any:
        inside.append(x)
        threading.Event().wait(0.05)  # the other thread would enter during this time
        assert len(inside) == 1
        inside.pop()
        return -x

    def ask(key: str) -> Any:
        both.wait(SECONDS)
        return cache.get(key, key).run(negative, X)

    with ThreadPoolExecutor(2) as pool:
        for value in pool.map(ask, ["a", "b"]):
            np.testing.assert_array_equal(value, -X)


def test_what_another_thread_has_begun_is_traced_while_it_is_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(programs, "_TURN_SECONDS", 0.1)
    cache, traced = ProgramCache(4), threading.Event()
    inner = cache.get("inner", "inner")

    def negative(x: Any) -> Any:
        traced.set()
        return -x

    def outer(x: Any) -> Any:
        asked = pool.submit(inner.run, negative, X)
        assert traced.wait(SECONDS)  # though this thread has the turn
        return x * asked.result()

    with ThreadPoolExecutor(1) as pool:
        np.testing.assert_array_equal(cache.get("outer", "outer").run(outer, X), -X)


def test_what_another_thread_compiles_need_not_be_waited_for() -> None:
    program, begun, ended = ProgramCache(4).get("key", "key"), threading.Event(), threading.Event()

    def negative(x: Any) -> Any:
        begun.set()
        assert ended.wait(SECONDS)
        return -x

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(program.prepare, negative, X)
        assert begun.wait(SECONDS) and not program.prepare(negative, X, wait=False)
        ended.set()
        assert other.result() and not program.prepare(negative, X)


def test_a_program_that_was_dropped_is_compiled_again() -> None:
    cache, start = ProgramCache(1), time.perf_counter()
    for key in ("a", "b", "a"):
        cache.get(key, key).run(jnp.negative, X)
    seconds = time.perf_counter() - start
    stats = cache.stats()
    assert (stats.programs, stats.capacity, stats.misses, stats.evictions, stats.hits) == (1, 1, 3, 2, 0)
    assert stats.read == 0 < stats.trace_seconds and stats.compile_seconds > 0
    assert stats.trace_seconds + stats.compile_seconds < seconds


def test_a_program_is_prepared_once_and_forgotten_when_dropped() -> None:
    cache = ProgramCache(4)
    program, other = cache.get("a", "a"), cache.get("b", "b")
    assert program.prepare(jnp.negative, X) and not program.prepare(jnp.negative, X)
    cache.drop(program)
    assert cache.get("b", "b") is other and cache.stats().programs == 1
    known = weakref.ref(program)
    del program
    gc.collect()
    assert known() is None
    assert cache.get("a", "a").prepare(jnp.negative, X)
    assert cache.stats().misses == 2


@pytest.mark.parametrize("key", ["a", ("a", 1)])
def test_a_program_is_found_by_equal_keys(key: Any) -> None:
    cache = ProgramCache(2)
    assert cache.get(key, "") is cache.get(key, "")


def test_each_placement_and_each_setting_of_jax_has_its_own_compilation_which_is_counted() -> None:
    cache = ProgramCache(2)
    program, compiled = cache.get("key", "product"), []

    def product(x: Any) -> Any:
        return x @ x.T

    def run(x: Any) -> None:
        before = cache.stats()
        np.testing.assert_allclose(program.run(product, x), [[12.0]])
        compiled.append((cache.stats() - before).misses)

    x = np.full((1, 3), 2, np.float32)
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    for _ in range(2):
        run(x)
        run(jax.device_put(x, NamedSharding(mesh, PartitionSpec(None, "d"))))
        with jax.default_matmul_precision("highest"):
            run(x)
        with jax.threefry_partitionable(not jax.config.jax_threefry_partitionable):
            run(x)
    assert compiled == [1, 1, 1, 1, 0, 0, 0, 0]
    assert cache.stats().programs == 1


def test_a_program_keeps_nothing_that_its_function_is_made_of_alive() -> None:
    class Large:
        pass

    cache, large = ProgramCache(2), Large()
    kept = weakref.ref(large)

    def function(x: Any, large: Large = large) -> Any:
        return x + 1

    cache.get("key", "sum").run(function, X)
    del large, function
    assert kept() is None
    # Another function that computes the same works as well, and is traced for another shape.
    np.testing.assert_array_equal(cache.get("key", "sum").run(lambda x: x + 1, X[:2]), X[:2] + 1)


def test_a_program_that_is_run_while_another_is_traced_is_traced_itself() -> None:
    cache = ProgramCache(2)

    def outer(x: Any) -> Any:
        inner = cache.get("inner", "inner").run(jnp.negative, X)
        assert not isinstance(inner, jax.core.Tracer)
        return x * inner * 2

    np.testing.assert_array_equal(cache.get("outer", "outer").run(outer, X), -2 * X)


class Keyed:
    """Something large with a key."""

    def __init__(self, key: str) -> None:
        self.key = key


@dataclass(frozen=True)
class Scaled(Plan, by_key=["model", "others"]):
    """``factor * x``, for a model that no program may keep alive."""

    model: Any
    others: tuple[Any, ...]
    factor: float
    note: str = field(default="", compare=False)

    def __call__(self, x: Any) -> Any:
        return self.factor * x


class Renamed(Scaled):
    """The same fields, another class."""


def test_plans_are_told_by_their_class_and_fields() -> None:
    one = Scaled(Keyed("a"), (Keyed("b"), Keyed("c")), 2.0)
    same = Scaled(Keyed("a"), (Keyed("b"), Keyed("c")), 2.0, "not compared")
    others = [
        Scaled(Keyed("d"), one.others, 2.0),
        Scaled(one.model, (Keyed("b"),), 2.0),
        Scaled(one.model, one.others, 3.0),
        Renamed(one.model, one.others, 2.0),
    ]
    assert one.key == same.key and hash(one.key) == hash(same.key)
    assert len({plan.key for plan in (one, same, *others)}) == 5
    before = compile_stats()
    np.testing.assert_array_equal(compiled(one)(X), 2 * X)
    np.testing.assert_array_equal(compiled(same)(X), 2 * X)
    assert (compile_stats() - before).misses == 1


def test_a_program_keeps_no_model_alive() -> None:
    model = Keyed("large")
    gone = weakref.ref(model)
    compiled(Scaled(model, (), 5.0))(X)
    del model
    assert gone() is None
