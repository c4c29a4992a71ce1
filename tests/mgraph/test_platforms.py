"""What depends on the platform or on the version of JAX: compiled with the installed version."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mgraph
from mgraph import DeviceError, ExpressionGraph, inits, platforms
from mgraph.platforms import OVERRIDE, WRONG_JAXLIB, check_jaxlib, compiler_wishes, kept_apart
from mgraph.running import programs
from mgraph.running.memory import MemoryUse
from mgraph.scalars import taken_apart

pytestmark = pytest.mark.optimized


def step(x: Any) -> Any:
    """A value that is kept apart and read twice."""
    y = kept_apart(0.5 * x + 0.4 * jnp.tanh(x))
    return y * jnp.cos(y) / (1 + jnp.mean(y * y))


NESTINGS: dict[str, Callable[[Any], Any]] = {
    "alone": step,
    "loop": lambda x: lax.fori_loop(0, 3, lambda i, x: step(x), x),
    "loop of unknown length": lambda x: lax.while_loop(lambda x: jnp.mean(x) > 0.1, step, x),
    "scan": lambda x: lax.scan(lambda x, _: (step(x), step(x)), x, None, 3)[0],
    "branch": lambda x: lax.cond(x[0] > 0, step, lambda x: x, x),
    "branch in a loop": lambda x: lax.fori_loop(0, 3, lambda i, x: lax.cond(i > 1, step, jnp.sin, x), x),
    "call": lambda x: jax.jit(step)(x) + 1,
    "batch": lambda x: jax.vmap(step)(jnp.stack([x, x]))[0],
    "recomputed": jax.checkpoint(step),
}


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.sampled(every=4)
def test_what_is_kept_apart_compiles_in_loops_branches_and_calls(nesting: str, size: int) -> None:
    function = NESTINGS[nesting]
    x = jnp.linspace(0.5, 1, size)
    for f in (function, jax.grad(lambda x: jnp.sum(function(x))) if "unknown" not in nesting else function):
        compiled = jax.jit(f).lower(x).compile(compiler_wishes(jax.default_backend()) or None)
        with jax.disable_jit():
            expected = f(x)
        np.testing.assert_allclose(compiled(x), expected, atol=1e-5 * float(jnp.max(jnp.abs(expected))))


def test_a_program_that_the_compiler_refuses_by_our_wishes_is_compiled_without(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "compiler_wishes", lambda platform: {"xla_no_such_option": True})
    program = programs.ProgramCache(1).get("key", "a sum")
    with caplog.at_level(logging.DEBUG, "mgraph"):
        for _ in range(2):
            assert program.run(lambda x: x + 1, jnp.ones(3)).tolist() == [2, 2, 2]
    assert caplog.text.count("compiled without {'xla_no_such_option'") == 1


def test_kernels_for_cpus_take_numbers_from_small_vectors() -> None:
    """Kernels that are equal but for the places of their numbers would all be compiled."""

    def kernels(elements: Callable[[Any], Any]) -> list[str]:
        def chain(x: Any, w: Any, numbers: Any) -> Any:
            for number in elements(numbers):
                x = jnp.tanh(x @ w) * number
            return x

        x = jnp.ones((8, 8))
        compiled = jax.jit(chain).lower(x, x, jnp.ones(16)).compile(compiler_wishes("cpu"))
        parts = compiled.as_text().split("\n\n")
        return [part for part in parts if "tanh(" in part and not part.startswith("ENTRY")]

    for elements, vector in ((list, "f32[16]"), (taken_apart, "f32[4]")):
        found = kernels(elements)
        assert len(found) == 16 and all(vector in kernel for kernel in found), elements


def test_programs_for_cpus_keep_values_no_longer_than_needed() -> None:
    """At most two values of a hidden layer's size exist at a time: its own value, and a gradient."""
    x, a, b = jnp.ones((64, 16)), jnp.ones((16, 1024)), jnp.ones((1024, 16))
    gradient = jax.jit(jax.grad(lambda a, b: jnp.sum(jax.nn.relu(x @ a) @ b), (0, 1)))
    compiled = gradient.lower(a, b).compile(compiler_wishes("cpu"))
    assert MemoryUse.of(compiled, None).temporaries < 2.1 * 4 * 64 * 1024


def test_other_platforms_fuse_as_they_like() -> None:
    text = jax.export.export(jax.jit(step), platforms=["cuda"])(jnp.ones(3)).mlir_module()
    assert "optimization_barrier" not in text
    graph = ExpressionGraph()
    w, x = graph.param("w", (64, 64)), graph.constant((8, 64), inits.ones())
    function = graph.function(mgraph.sum(mgraph.flatten(mgraph.dot(x, w))), [x])
    gradient = jax.jit(jax.grad(lambda p: function.pure(p, [x.val()])[0]))
    for platform, barriers in (("cpu", True), ("cuda", False), ("tpu", False)):
        text = jax.export.export(gradient, platforms=[platform])({"w": w.val()}).mlir_module()
        assert ("optimization_barrier" in text) is barriers


def test_a_jaxlib_that_is_wrong_on_cpus_is_refused_unless_a_variable_allows_it() -> None:
    with pytest.raises(DeviceError, match=r"jaxlib 0\.10\.2 computes wrong values on CPUs.*install"):
        check_jaxlib(WRONG_JAXLIB, {})
    check_jaxlib(WRONG_JAXLIB, {OVERRIDE: "1"})
    check_jaxlib("0.10.1", {})
    check_jaxlib("0.12.0.1", {})


def test_every_way_into_a_program_asks_which_jaxlib_it_is() -> None:
    code = (
        f"import jax, jaxlib.version; jaxlib.version.__version__ = {WRONG_JAXLIB!r}\n"
        "import mgraph\n"
        "graph = mgraph.ExpressionGraph()\n"
        "y = graph.param('w', (2, 2)) * 2\n"
        "f = graph.function(y, [])\n"
        "for run in (graph.forward, graph.backprop, f, lambda: f.pure(graph.params().vals()),\n"
        "            lambda: mgraph.check_gradients(y)):\n"
        "    try:\n        run()\n        y.val()\n"
        "    except mgraph.DeviceError as e:\n        print(e)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != OVERRIDE} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert run.stdout.count("jaxlib 0.10.2 computes wrong values") == 5, run.stdout + run.stderr
