"""Programs that translate again and again in one process, after its start and its compilations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.decoding.models import Task
from benchmarks.decoding.rows import (
    CTRANSLATE2,
    MARIAN,
    OURS,
    Measuring,
    attempted,
    ctranslate2,
    leave_out,
    marian,
    normalization,
)
from benchmarks.measuring import Child, alternate
from benchmarks.peers.pymarian_decoding import PymarianDecoder
from benchmarks.training.models import NO_CACHE


class Caller(NamedTuple):
    """A program that translates. Its functions take lines and a beam; between these, ``decode`` takes the
    batch size, and ``company`` how many lines are translated together."""

    decode: Callable[[Sequence[str], int, int], tuple[float, list[str]]]
    """Seconds, and translations."""
    company: Callable[[Sequence[str], int, int], list[str]]
    """Translations."""
    latency: Callable[[Sequence[str], int], Sequence[float]]
    """Seconds of each line, translated by itself."""
    slow_start: bool
    """Whether the first call takes longer than others."""


def callers(task: Task, measuring: Measuring, cache: Path, stack: ExitStack) -> dict[str, Caller]:
    """The callers by name of their rows. Their processes end with the stack; ``cache`` is for what ours
    compiles."""
    found: dict[str, Caller] = {}
    programs = measuring.programs
    for precision in measuring.precisions:
        found[f"{OURS} {precision}"] = _ours(task, measuring, precision, cache, stack)
        if programs.pymarian:
            found[f"{MARIAN} {precision}"] = _marian(marian(task, measuring, precision))
        if programs.ctranslate2_python:
            make = partial(_ctranslate2, task, measuring, precision, stack)
            attempted(found, f"{CTRANSLATE2} {precision}", make)
    return found


def prepared(
    found: Mapping[str, Caller], candidates: Mapping[str, Callable[[], Any]]
) -> dict[str, Callable[[], Any]]:
    """The candidates that work, after a first call if that takes longer than others."""
    first = {name: run for name, run in candidates.items() if found[name].slow_start}
    ready = alternate(first, rounds=1, warm_up=0, left_out=leave_out)
    return {name: run for name, run in candidates.items() if name in ready or name not in first}


def _ours(task: Task, measuring: Measuring, precision: str, cache: Path, stack: ExitStack) -> Caller:
    options = {
        **task.own_options(precision),
        "cpu_threads": measuring.own_threads,
        "compilation_cache": str(cache),
    }
    child = Child("benchmarks.decoding.child", json.dumps(options), environment=NO_CACHE)
    return _caller(child, f"{OURS} {precision}", stack, company="calls")


def _ctranslate2(task: Task, measuring: Measuring, precision: str, stack: ExitStack) -> dict[str, Caller]:
    peers = ctranslate2(task, measuring, precision)
    return {name: _caller(peer.child(), name, stack) for name, peer in peers.items()}


def _caller(child: Child, name: str, stack: ExitStack, *, company: str = "decode") -> Caller:
    """company: the question that asks for translations of a number of lines together."""
    stack.callback(child.close)
    known: set[tuple[str, int, int]] = set()

    def ask(question: str, lines: Sequence[str], batch: int, beam: int) -> dict[str, Any]:
        details = {"lines": list(lines), "batch": batch, "beam": beam, "normalize": normalization(beam)}
        found = child.ask(question, **details)
        if found.get("programs") and (question, batch, beam) in known:
            print(f"{name}: in a round that counts {found['programs']} programs were compiled")
        known.add((question, batch, beam))
        return found

    def decode(lines: Sequence[str], batch: int, beam: int) -> tuple[float, list[str]]:
        found = ask("decode", lines, batch, beam)
        return found["seconds"], found["lines"]

    def latency(lines: Sequence[str], beam: int) -> Sequence[float]:
        return ask("latency", lines, 1, beam)["seconds"]

    def together(lines: Sequence[str], count: int, beam: int) -> list[str]:
        translated: list[str] = ask(company, lines, count, beam)["lines"]
        return translated

    return Caller(decode, together, latency, slow_start=True)


def _marian(peer: PymarianDecoder) -> Caller:
    """Marian is restarted for each call: it counts its seconds itself, without its start."""

    def decode(lines: Sequence[str], batch: int, beam: int) -> tuple[float, list[str]]:
        return peer.decode(
            lines, batch, beam_size=beam, normalize=normalization(beam), quiet_translation=True
        )

    def together(lines: Sequence[str], count: int, beam: int) -> list[str]:
        return decode(lines, count, beam)[1]

    def latency(lines: Sequence[str], beam: int) -> Sequence[float]:
        # The first line, during which its memory grows, is not counted.
        return peer.latencies([lines[0], *lines], beam_size=beam, normalize=normalization(beam))

    return Caller(decode, together, latency, slow_start=False)
