"""What JAX has compiled, in this process and in each thread, and how long it took."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import jax

log = logging.getLogger("mgraph.programs")


@dataclass(frozen=True)
class CompileStats:
    """What the cache of compiled programs has done in this process; all times in seconds."""

    programs: int = 0
    """Programs held now."""
    capacity: int = 0
    """Programs held at most; the least recently used one is dropped."""
    hits: int = 0
    """Runs for which nothing was compiled."""
    misses: int = 0
    """Compilations: of a new program, or of a held one for another placement or another setting of JAX."""
    read: int = 0
    """Misses that JAX had compiled before and read from its compilation cache on disk."""
    evictions: int = 0
    trace_seconds: float = 0.0
    """Time spent in turning recorded structures into JAX programs."""
    compile_seconds: float = 0.0
    """Time spent in XLA."""

    def __sub__(self, other: CompileStats) -> CompileStats:
        """What happened since ``other`` was taken."""
        added = [field.name for field in fields(self) if field.name not in ("programs", "capacity")]
        return replace(self, **{name: getattr(self, name) - getattr(other, name) for name in added})


class Tally:
    """The numbers of ``CompileStats``, summed over all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._announced = False
        self.counts: dict[str, Any] = defaultdict(int)

    def begins(self) -> None:
        """Say once, before the first program is compiled, why nothing seems to happen."""
        with self._lock:
            first, self._announced = not self._announced, True
        if first:
            log.info("[programs] Compiling the first program; each is named at level debug")

    def add(self, name: str, number: float = 1) -> None:
        with self._lock:
            self.counts[name] += number

    def missed(self, label: str, traced: float, compiled: float, read: bool) -> None:
        how = "read from the cache" if read else "compiled"
        log.debug("%s: traced in %.2f s, %s in %.2f s", label, traced, how, compiled)
        self.add("misses")
        self.add("read", read)
        self.add("trace_seconds", traced)
        self.add("compile_seconds", compiled)


class Compilations(NamedTuple):
    """What JAX has compiled in a thread; a new object after each compilation."""

    reads: int = 0
    """Programs that JAX read from its compilation cache on disk."""
    seconds: float = 0.0


class _InThread(threading.local):
    compilations = Compilations()


_THREAD = _InThread()


def compilations() -> Compilations:
    """What JAX has compiled in this thread."""
    return _THREAD.compilations


def _note(event: str, duration_secs: float, **_: Any) -> None:
    if event.endswith("/backend_compile_duration"):
        reads, seconds = _THREAD.compilations
        _THREAD.compilations = Compilations(reads, seconds + duration_secs)


def _note_read(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        reads, seconds = _THREAD.compilations
        _THREAD.compilations = Compilations(reads + 1, seconds)


jax.monitoring.register_event_duration_secs_listener(_note)
jax.monitoring.register_event_listener(_note_read)
