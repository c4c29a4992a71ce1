"""Compiled programs: one cache for the whole process, keyed by structure, bounded, and able to report.

JAX compiles per program and shape. A graph that is rebuilt for every batch must therefore find its
program by what it computes, never by object identity: the key is a tuple of operators, specs, positions
and flags. ``compile_stats()`` says what the cache has done.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import jax

from ..device import platform_of
from ..errors import ArgumentError

log = logging.getLogger("mgraph.programs")

_SETTINGS = ("jax_default_device", "jax_default_matmul_precision")
"""What of JAX's settings a program is compiled with."""

_OPTIONS: dict[str, dict[str, str | bool]] = {"cpu": {"xla_disable_hlo_passes": "cse_barrier_expander"}}
"""XLA's options by platform, in place of what ``XLA_FLAGS`` says of them. For CPUs it would drop barriers
before it fuses, and then fuse what they keep apart (``Node.computed_once``)."""


@dataclass(frozen=True)
class CompileStats:
    """What the cache of compiled programs has done in this process; all times in seconds."""

    programs: int = 0
    """Programs held now."""
    capacity: int = 0
    """Programs held at most; the least recently used one is dropped."""
    hits: int = 0
    misses: int = 0
    """Programs compiled."""
    evictions: int = 0
    trace_seconds: float = 0.0
    """Time spent in turning recorded structures into JAX programs."""
    compile_seconds: float = 0.0
    """Time spent in XLA."""

    def __sub__(self, other: CompileStats) -> CompileStats:
        """What happened since ``other`` was taken."""
        return replace(
            self,
            hits=self.hits - other.hits,
            misses=self.misses - other.misses,
            evictions=self.evictions - other.evictions,
            trace_seconds=self.trace_seconds - other.trace_seconds,
            compile_seconds=self.compile_seconds - other.compile_seconds,
        )


class Program:
    """A compiled computation."""

    __slots__ = ("backward_follows", "compiled", "context", "label")

    def __init__(self, label: str, compiled: Any, context: Callable[[], Any]) -> None:
        self.label = label
        self.compiled = compiled
        self.context = context
        self.backward_follows = False
        """Whether the last run of this forward program was followed by ``backward()``."""

    def __call__(self, *args: Any) -> Any:
        with self.context():
            return self.compiled(*args)


def callers_settings() -> Callable[[], AbstractContextManager[None]]:
    """What of JAX's settings programs are compiled with, as a context for other threads."""
    device, precision = (getattr(jax.config, setting) for setting in _SETTINGS)

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        with jax.default_device(device), jax.default_matmul_precision(precision):
            yield

    return context


class ProgramCache:
    """Least recently used programs. Several threads may compile at once, each another program; what one
    compiles already, others wait for; if that fails they try themselves."""

    def __init__(self, capacity: int) -> None:
        self._programs: OrderedDict[Hashable, Program] = OrderedDict()
        self._compiling: dict[Hashable, threading.RLock] = {}
        self._lock = threading.RLock()
        self._stats = CompileStats(capacity=capacity)

    def get(
        self,
        key: Hashable,
        label: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        device: jax.Device | None = None,
        wide: bool = False,
        donated: tuple[int, ...] = (),
    ) -> Program:
        """The program of ``key``; on first use ``function`` is compiled for arguments like ``args``.

        ``label`` describes it in the log, ``wide`` enables 64-bit types. The buffers of the ``donated``
        arguments are given to the program, which may write its results there. JAX's default device and
        precision of matrix products are those of now.
        """
        key = (key, device, wide, donated, *(getattr(jax.config, setting) for setting in _SETTINGS))
        with self._lock:
            program = self._found(key)
            if program is not None:
                return program
            own = self._compiling.setdefault(key, threading.RLock())
        with own:
            with self._lock:
                program = self._found(key)  # another thread may have compiled it meanwhile
            if program is None:
                program = self._compiled(key, label, function, args, device, wide, donated)
        return program

    def _found(self, key: Hashable) -> Program | None:
        program = self._programs.get(key)
        if program is not None:
            self._programs.move_to_end(key)
            self._stats = replace(self._stats, hits=self._stats.hits + 1)
        return program

    def _compiled(self, key: Hashable, *arguments: Any) -> Program:
        try:
            program, traced, compiled = _compile(*arguments)
            with self._lock:
                self._programs[key] = program
                self._evict()
                self._stats = replace(
                    self._stats,
                    misses=self._stats.misses + 1,
                    trace_seconds=self._stats.trace_seconds + traced,
                    compile_seconds=self._stats.compile_seconds + compiled,
                )
            return program
        finally:
            with self._lock:
                self._compiling.pop(key, None)

    def stats(self) -> CompileStats:
        with self._lock:
            return replace(self._stats, programs=len(self._programs))

    def clear(self) -> None:
        with self._lock:
            self._programs.clear()

    def resize(self, capacity: int) -> None:
        with self._lock:
            self._stats = replace(self._stats, capacity=capacity)
            self._evict()

    def _evict(self) -> None:
        excess = max(0, len(self._programs) - self._stats.capacity)
        for _ in range(excess):
            self._programs.popitem(last=False)
        self._stats = replace(self._stats, evictions=self._stats.evictions + excess)


def _compile(
    label: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    device: jax.Device | None,
    wide: bool,
    donated: tuple[int, ...],
) -> tuple[Program, float, float]:
    @contextlib.contextmanager
    def context() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if device is not None:
                stack.enter_context(jax.default_device(device))
            stack.enter_context(jax.enable_x64(wide))
            yield

    start = time.perf_counter()
    with context():
        lowered = jax.jit(function, donate_argnums=donated).lower(*args)
        middle = time.perf_counter()
        compiled = lowered.compile(_OPTIONS.get(platform_of(device)))
    end = time.perf_counter()
    log.info("compiled %s: traced in %.2f s, compiled in %.2f s", label, middle - start, end - middle)
    return Program(label, compiled, context), middle - start, end - middle


PROGRAMS = ProgramCache(capacity=512)


def compile_stats() -> CompileStats:
    """Hits, misses, evictions and compile seconds of the process-wide cache of programs.

    Take it twice and subtract to see what a piece of code compiled.
    """
    return PROGRAMS.stats()


def clear_programs() -> None:
    """Drop all compiled programs; they are compiled anew when needed."""
    PROGRAMS.clear()


def set_program_capacity(programs: int) -> None:
    """Hold at most this many compiled programs (512 at first); ``ArgumentError`` for a negative number."""
    if programs < 0:
        raise ArgumentError(f"expected a number of programs of at least 0, got {programs}")
    PROGRAMS.resize(programs)
