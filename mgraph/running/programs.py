"""Compiled programs: one bounded cache for the whole process, keyed by what the programs compute.

``compiled(plan)`` is the only way to a program. JAX compiles per function and shape. A graph that is rebuilt
for every batch must therefore find its program by what it computes, never by object identity: a plan's key
is made of operators, specs, positions and flags. For one program, JAX itself keeps an executable per
placement of the arguments and combination of its settings, the random generator excepted.
``compile_stats()`` says what the cache has done.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple

import jax
from jax.errors import JaxRuntimeError
from jax.extend.core import get_opaque_trace_state

from ..arrays import described, whole
from ..device import check_process, platform_of
from ..errors import ArgumentError, GraphError
from ..places import here
from ..platforms import Options, as_wished
from . import stored
from .compilations import CompileStats, Tally, compilations
from .failures import failure_of
from .memory import MemoryUse

_SETTINGS = ("jax_default_device", *stored.SETTINGS)
"""The settings of JAX that a program depends on and that may differ between threads, except 64-bit types,
which each program turns on or off itself. For each, ``jax`` has a context manager of that name."""


class _Thread(threading.local):
    """What a thread is tracing."""

    function: Callable[..., Any] | None = None


_THREAD = _Thread()
_NOT_TRACED = get_opaque_trace_state()
_TRACING = threading.RLock()
_TURN_SECONDS = 60.0


@contextlib.contextmanager
def _turn_to_trace() -> Iterator[None]:
    """Let one thread trace at a time. Python would interleave several tracing threads, so that all finish
    late; this way, while one traces, XLA compiles what the others have traced.

    No thread waits longer than a minute: tracing may itself run a program that another thread has started to
    compile.
    """
    taken = _TRACING.acquire(timeout=_TURN_SECONDS)
    try:
        yield
    finally:
        if taken:
            _TRACING.release()


class PlanKey:
    """The parts that identify a plan; hashed once, because a plan is looked up at every call."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanKey) and self._parts == other._parts

    def __hash__(self) -> int:
        return self._hash


class Plan:
    """What a program computes: a function, and a key that identifies it. A frozen dataclass.

    ``plan(*args)`` is the function, of pytrees of arrays, which JAX traces; ``str(plan)`` names it in the
    log. Plans with equal keys compute the same result and share a program. The key is made of the class and
    its fields, which are hashable. A program outlives its plan. A field that the program must not keep alive,
    such as a model, has its own ``key``, which replaces it in the plan's key; the class names such fields:
    ``class MyPlan(Plan, by_key=["model"])``. They may also be tuples of such objects. A field that follows
    from the others is left out with ``field(compare=False)``.

    A plan that knows its ``inputs`` is traced once for all processes if JAX has a compilation cache and the
    plan's key is made of plain values: it is stored in the cache (``mgraph.running.stored``).
    ``code=["nmt"]`` names the packages, besides mgraph, whose source files it depends on.
    """

    _by_key: ClassVar[frozenset[str]] = frozenset()
    _code: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, by_key: Iterable[str] = (), code: Iterable[str] = ()) -> None:
        super().__init_subclass__()
        cls._by_key |= frozenset(by_key)
        cls._code += tuple(code)

    @cached_property
    def key(self) -> Hashable:
        """What identifies this plan."""
        return PlanKey(self._parts)

    @property
    def _parts(self) -> tuple[Any, ...]:
        cls: Any = type(self)
        values = [(name, getattr(self, name)) for name in _names(cls)]
        return cls, *(_key(value) if name in self._by_key else value for name, value in values)

    @property
    def donated(self) -> tuple[int, ...]:
        """Positions of the arguments whose buffers the program may overwrite with its results."""
        return ()

    def inputs(self) -> tuple[Any, ...] | None:
        """The shapes and types of the arguments; None for a plan that is not to be stored."""
        return None

    def stored(self) -> jax.export.Exported | None:
        """The traced program, if it is stored."""
        if type(self).inputs is Plan.inputs:
            return None
        return stored.find(self._parts, self._code, self, self.inputs)

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError


@cache
def _names(plan: Any) -> tuple[str, ...]:
    """The fields of a plan class that identify a plan."""
    return tuple(field.name for field in fields(plan) if field.compare)


def _key(value: Any) -> Hashable:
    return tuple(map(_key, value)) if isinstance(value, tuple) else (type(value), value.key)


class Program:
    """One computation, which JAX compiles for each placement of its arguments, and for each combination of
    JAX's settings, that it is run with.

    label: names it in the log. device: receives arguments that are not on a device yet; ``None`` for JAX's
    default device. wide: whether there are 64-bit types. donated: arguments whose buffers the program may
    overwrite with its results.

    Each run passes the function to compute, which may be a different object each time as long as it computes
    the same result; so a program keeps no part of its function alive.
    """

    def __init__(
        self, label: str, device: jax.Device | None, wide: bool, donated: tuple[int, ...], tally: Tally
    ) -> None:
        self.label, self._device, self.wide, self._donated, self._tally = label, device, wide, donated, tally
        self._preparing = threading.RLock()
        self._jitted: Any = None
        self.backward_follows = False
        """Whether the last run of this forward program was followed by ``backward()``."""

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, a function of pytrees of arrays, compiled.

        If a thread is already compiling it, other threads wait; if that compilation fails, they try
        themselves. ``OutOfMemoryError`` and ``JaxRuntimeError`` for XLA's errors.
        """
        try:
            if self.prepare(function, *args):
                return self._within(self._jitted, function, args)
            return self._counted(self._jitted, function, args)
        except (JaxRuntimeError, ValueError) as error:
            failure = failure_of(error, self.label)
            if failure is None:
                raise
            raise failure from None

    def prepare(self, function: Callable[..., Any], *args: Any, wait: bool = True) -> bool:
        """Compile ``function`` for such arguments unless that was done before; returns whether it compiled.

        wait: whether to wait for another thread that is compiling it, rather than leave it to that thread.
        """
        return self._jitted is None and self._prepare(function, args, wait)

    def compiled(self, function: Callable[..., Any], *args: Any) -> Any:
        """XLA's executable of ``function`` for such arguments, for analyses; nothing is run."""
        self.prepare(function, *args)
        return self._counted(lambda *args: self._jitted.lower(*args).compile(), function, args)

    def _prepare(self, function: Callable[..., Any], args: tuple[Any, ...], wait: bool) -> bool:
        """Compile for the first time; false if another thread has compiled it by now, or is compiling it."""
        if not self._preparing.acquire(blocking=wait):
            return False
        try:
            if self._jitted is not None:
                return False
            self._tally.begins()
            before, start = compilations(), time.perf_counter()
            waited = traced = 0.0

            def compile(options: Options) -> Any:
                nonlocal waited, traced
                jitted, asked = self._jit(options), time.perf_counter()
                with _turn_to_trace():
                    began = time.perf_counter()
                    lowered = self._within(jitted.lower, function, args)
                waited += began - asked
                traced += time.perf_counter() - began
                self._within(lowered.compile, function, ())
                return jitted

            self._jitted = as_wished(platform_of(self._device), compile)
            read = compilations().reads > before.reads
            compiled = time.perf_counter() - start - waited - traced
            self._tally.missed(self.label, traced, compiled, read)
            return True
        finally:
            self._preparing.release()

    def _jit(self, options: Options) -> Any:
        def traced(*args: Any) -> Any:
            function = _THREAD.function
            assert function is not None
            known = function.stored() if isinstance(function, Plan) else None
            return function(*args) if known is None else known.call(*args)

        return jax.jit(traced, donate_argnums=self._donated, compiler_options=options or None)

    def _counted(self, call: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        before, start = compilations(), time.perf_counter()
        result = self._within(call, function, args)
        after = compilations()
        if after is before:
            self._tally.add("hits")
        else:
            compiled = after.seconds - before.seconds
            traced = time.perf_counter() - start - compiled
            self._tally.missed(self.label, traced, compiled, after.reads > before.reads)
        return result

    def _within(self, call: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """``call(*args)``, run immediately even while a program is being traced; if the call traces, it
        traces ``function``."""
        _refuse_transformations(self.label)
        traced = _THREAD.function is not None and _is_traced()
        outer, _THREAD.function = _THREAD.function, function
        try:
            if self._device is None and jax.config.jax_enable_x64 == self.wide and not traced:
                return call(*args)
            with contextlib.ExitStack() as stack:
                if traced:
                    stack.enter_context(jax.ensure_compile_time_eval())
                if self._device is not None:
                    stack.enter_context(jax.default_device(self._device))
                stack.enter_context(jax.enable_x64(self.wide))
                return call(*args)
        finally:
            _THREAD.function = outer


def _is_traced() -> bool:
    return get_opaque_trace_state() != _NOT_TRACED


def _refuse_transformations(label: object) -> None:
    """``GraphError`` if JAX is tracing here anything but a program."""
    if _THREAD.function is None and _is_traced():
        raise GraphError(
            f"{label} runs on values, but JAX is tracing here (inside jit, grad or vmap) and would take the "
            f"result for a constant; use graph.function(outputs, inputs).pure(params, inputs){here()}"
        )


class ProgramCache:
    """A cache of programs by key, which drops the least recently used."""

    def __init__(self, capacity: int) -> None:
        self._programs: OrderedDict[Hashable, Program] = OrderedDict()
        self._lock = threading.Lock()
        self._capacity = capacity
        self._tally = Tally()

    def get(
        self,
        key: Hashable,
        label: object,
        *,
        device: jax.Device | None = None,
        wide: bool = False,
        donated: tuple[int, ...] = (),
    ) -> Program:
        """The program of ``key``, which says what is computed; the other arguments are ``Program``'s.

        ``DeviceError`` in a fork of a process in which JAX ran: no program can run there.
        """
        check_process()
        # The only setting that programs depend on and that is not in JAX's own key.
        full = key, device, wide, donated, jax.config.jax_default_prng_impl
        with self._lock:
            program = self._programs.get(full)
            if program is None:
                program = self._programs[full] = Program(str(label), device, wide, donated, self._tally)
                self._evict()
            else:
                self._programs.move_to_end(full)
        return program

    def drop(self, program: Program) -> None:
        """Forget a program."""
        with self._lock:
            self._programs = OrderedDict((k, p) for k, p in self._programs.items() if p is not program)

    def stats(self) -> CompileStats:
        with self._lock:
            programs, capacity = len(self._programs), self._capacity
        return CompileStats(programs, capacity, **self._tally.counts)

    def clear(self) -> None:
        with self._lock:
            self._programs.clear()

    def resize(self, capacity: int) -> None:
        with self._lock:
            self._capacity = capacity
            self._evict()

    def _evict(self) -> None:
        excess = max(0, len(self._programs) - self._capacity)
        for _ in range(excess):
            self._programs.popitem(last=False)
        if excess:
            self._tally.add("evictions", excess)


PROGRAMS = ProgramCache(capacity=512)


class Compiled(NamedTuple):
    """A plan and its program; called like the plan."""

    program: Program
    plan: Plan

    def __call__(self, *args: Any) -> Any:
        return self.program.run(self.plan, *args)

    def inputs(self) -> tuple[Any, ...]:
        """The shapes and types of the arguments, for a plan that knows them; nothing is recorded or traced
        for a stored plan."""
        with jax.enable_x64(self.program.wide):  # as when it is traced to run
            known = self.plan.stored()
            found = self.plan.inputs() if known is None else None
        if known is not None:
            specs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in known.in_avals]
            return tuple(jax.tree.unflatten(known.in_tree, specs)[0])
        if found is None:
            raise ArgumentError(f"{self.plan} does not know its inputs")
        return found

    def prepare(self, *args: Any, wait: bool = True) -> bool:
        """Compile for such arguments unless that was done before; returns whether it compiled. wait: whether
        to wait for another thread that is compiling it, rather than leave it to that thread."""
        return self.program.prepare(self.plan, *args, wait=wait)

    def drop(self) -> None:
        """Forget the program, which takes some ten megabytes; it is compiled again when needed."""
        PROGRAMS.drop(self.program)

    def analysed(self, *args: Any) -> Any:
        """XLA's executable of the plan for such arguments; nothing is run."""
        return self.program.compiled(self.plan, *args)

    def memory(self, *args: Any) -> MemoryUse:
        """The memory that the program needs for such arguments, by XLA's analysis; nothing is run."""
        return MemoryUse.of(self.analysed(*args), None)


def compiled(plan: Plan, *, device: jax.Device | None = None, wide: bool = False) -> Compiled:
    """A plan as a compiled function of the same arguments; plans with equal keys share one program.

    device: receives arguments that are not on a device yet; ``None`` for JAX's default device. wide: whether
    there are 64-bit types. ``DeviceError`` in a fork of a process in which JAX ran: no program can run there.
    ``GraphError`` inside a transformation of JAX, before anything that JAX traces is kept; ``ArgumentError``
    for anything but a plan.
    """
    if not isinstance(plan, Plan):
        raise ArgumentError(f"compiled expects a plan, got {described(plan)}{here()}")
    _refuse_transformations(plan)
    return Compiled(PROGRAMS.get(plan.key, plan, device=device, wide=wide, donated=plan.donated), plan)


def callers_settings() -> Callable[[], AbstractContextManager[None]]:
    """The caller's settings of JAX that programs are compiled under, as a context for other threads."""
    values = {name: getattr(jax.config, name) for name in _SETTINGS}

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, value in values.items():
                stack.enter_context(getattr(jax, name.removeprefix("jax_"))(value))
            yield

    return context


def compile_stats() -> CompileStats:
    """Hits, misses, evictions and compile seconds of the process-wide cache of programs.

    Take it twice and subtract to see what a piece of code compiled.
    """
    return PROGRAMS.stats()


def clear_programs() -> None:
    """Drop all compiled programs; they are compiled again when needed."""
    PROGRAMS.clear()


def set_program_capacity(programs: int) -> None:
    """Hold at most this many compiled programs (512 by default); ``ArgumentError`` for a negative number and
    for anything but a whole number."""
    count = whole("set_program_capacity", "programs", programs)
    if count < 0:
        raise ArgumentError(f"expected a number of programs of at least 0, got {count}")
    PROGRAMS.resize(count)
