"""Dynamic graphs: recording, the structure key, a page of the graph, what a cached run costs on the host, and
the first compile.

Chains of ``x = tanh(affine(x, W, b)) * 0.5 + x`` with ``--nodes`` nodes, batch 32, dimension 64, compared
with the same function and its ``jax.value_and_grad`` in plain JAX under ``jax.jit``. Then graphs as models
make them: a training step of a 6+6-layer transformer, a GRU over 16 and over 128 steps.

Marian in C++ has no such loop to call from here. Version 1.12 needed 2 ms to record the chain of 2,000
nodes and 42 ms for its backprop, on two AVX-512 cores on which plain JAX's compiled run took 15 ms.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import layers
import mgraph
from benchmarks.measuring import Table, alternate, positive, print_machine
from mgraph import ExpressionGraph, Node, inits
from nmt.files import create_model
from nmt.models import Source
from nmt.runtime import devices
from nmt.settings.model_options import parse_model_options

BATCH, DIM, WEIGHTS = 32, 64, 8
US, MS = 1e6, 1e3


class Workload(NamedTuple):
    """A graph, and its equivalent in plain JAX if there is one."""

    name: str
    record: Callable[[ExpressionGraph], Node]
    plain: Callable[[dict[str, Any], Any], Any] | None = None
    """Takes parameters, named as in the graph, and ``x``; returns the sum of the last node, and that node."""


def first_value() -> Any:
    """The value of ``x``, with which the chain begins."""
    return jnp.full((BATCH, DIM), 0.1, jnp.float32)


def chain(nodes: int) -> Workload:
    """The chain of about this many nodes; a link has four."""
    links = max(1, nodes // 4)

    def record(graph: ExpressionGraph) -> Node:
        x: Node = graph.constant((BATCH, DIM), inits.from_value(0.1))
        for i in range(links):
            w = graph.param(f"W{i % WEIGHTS}", (DIM, DIM))
            b = graph.param(f"b{i % WEIGHTS}", (1, DIM), inits.zeros())
            x = mgraph.tanh(mgraph.affine(x, w, b)) * 0.5 + x
        return x

    def loss(params: dict[str, Any], x: Any) -> tuple[Any, Any]:
        for i in range(links):
            w, b = params[f"W{i % WEIGHTS}"], params[f"b{i % WEIGHTS}"]
            x = jnp.tanh(x @ w + b) * 0.5 + x
        return jnp.sum(x), x

    return Workload(f"chain of {nodes:,}", record, loss)


def gru(steps: int) -> Workload:
    """A GRU of 128 units over this many steps, batch 16."""

    def record(graph: ExpressionGraph) -> Node:
        xs = graph.constant((steps, 16, 128), inits.from_value(0.1))
        cell = layers.GRU("gru", dim_input=128, dim_state=128)
        states = layers.RNN([cell])(xs).output
        return mgraph.sum(mgraph.flatten(states * states))

    return Workload(f"GRU, {steps} steps", record)


def transformer(batch: int = 8, length: int = 24) -> Workload:
    """The loss of a training step of a transformer, 6+6 layers of 256, ffn 1024, 8 heads, 2,000 words."""
    model = create_model(
        parse_model_options(
            "type: transformer\ndim-vocabs: [2000, 2000]\ndim-emb: 256\ntransformer-heads: 8\n"
            "transformer-dim-ffn: 1024\nenc-depth: 6\ndec-depth: 6\ntied-embeddings-all: true\n",
            "benchmark",
        )
    )

    def record(graph: ExpressionGraph) -> Node:
        ids = graph.indices([2 + i * 7 % 1900 for i in range(batch * length)])
        words = mgraph.reshape(ids, (batch, length))
        state = model.encode([Source(words, graph.ones((batch, length)))])
        logits = model.logits(state, words)
        return mgraph.sum(mgraph.flatten(mgraph.cross_entropy(logits, ids, 0.1)))

    return Workload("transformer, 6+6 layers", record)


class Subject:
    """A workload on its own graph, compiled."""

    def __init__(self, workload: Workload) -> None:
        self.name, self._record = workload.name, workload.record
        self._graph = ExpressionGraph()
        self.record()
        self._trained = list(self._graph.params().trainable().values())
        before = mgraph.compile_stats()
        self.backprop(rebuild=True)
        self.compiled = mgraph.compile_stats() - before
        self.nodes = len(self._graph.tape.nodes)
        self.function = self._graph.function(self._graph.tape.nodes[-1], [])
        self.plain: Callable[[], Any] | None = None
        self.plain_forward: Callable[[], Any] | None = None
        self.plain_seconds = 0.0
        if workload.plain is not None:
            arguments = self._graph.params().vals(), first_value()
            gradient = jax.jit(jax.value_and_grad(workload.plain, has_aux=True))
            forward = jax.jit(workload.plain)
            start = time.perf_counter()
            gradient.lower(*arguments).compile()
            self.plain_seconds = time.perf_counter() - start
            self.plain, self.plain_forward = partial(gradient, *arguments), partial(forward, *arguments)

    def record(self) -> float:
        """Seconds to clear the graph and record it again."""
        start = time.perf_counter()
        self._graph.clear()
        self._record(self._graph)
        return time.perf_counter() - start

    def key(self) -> float:
        """Seconds to make and hash the key of what is recorded."""
        start = time.perf_counter()
        hash(self._graph.tape.structure())
        return time.perf_counter() - start

    def page(self) -> float:
        """Seconds to draw what is recorded and write the page."""
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            self._graph.html(Path(folder) / "graph.html")
            return time.perf_counter() - start

    def backprop(self, rebuild: bool) -> Any:
        """The gradients of the recorded graph; with ``rebuild``, it is first recorded again."""
        if rebuild:
            self.record()
        self._graph.backprop()
        return [node.grad() for node in self._trained]

    def rebuilt_programs(self) -> int:
        """How many programs are compiled for a graph that is recorded again."""
        before = mgraph.compile_stats()
        self.backprop(rebuild=True)
        return (mgraph.compile_stats() - before).misses


def handed_over(call: Callable[[], Any]) -> float:
    """Seconds until a call has handed its program to the device.

    The wait for its results is not counted, unless JAX runs small programs synchronously, which it then does
    for every candidate. The timed call follows one of the same candidate, because another candidate might
    leave the processor's caches in a better or worse state. The earlier results are freed as the new ones
    replace them, as in a loop.
    """
    results = jax.block_until_ready(call())
    start = time.perf_counter()
    results = call()
    seconds = time.perf_counter() - start
    jax.block_until_ready(results)
    return seconds


def show_recording(subjects: list[Subject]) -> None:
    """Print what recording, the key and a page of the graph cost."""
    headings = ["recording", "nodes", "us a node", "key: us a node", "page: us a node", "nodes/s"]
    table = Table([*headings, "programs recompiled"], width=24)
    for subject in subjects:
        seconds = alternate({"record": subject.record, "key": subject.key}, rounds=15)
        seconds |= alternate({"page": subject.page}, rounds=3)
        each = {name: found.times(US / subject.nodes) for name, found in seconds.items()}
        table.row(
            subject.name,
            subject.nodes,
            each["record"],
            each["key"],
            each["page"],
            seconds["record"].rates(subject.nodes),
            subject.rebuilt_programs(),
        )


def show_runs(subjects: list[Subject], rounds: int) -> None:
    """Print what a run costs once it is compiled."""
    print()
    table = Table(["run, ms", "rebuilt", "reused", "plain JAX", "rebuilt/plain", "reused/plain"], width=24)
    for subject in subjects:
        candidates: dict[str, Callable[[], Any]] = {
            "anew": partial(subject.backprop, rebuild=True),
            "again": partial(subject.backprop, rebuild=False),
        }
        if subject.plain is not None:
            candidates["plain"] = subject.plain
        found = alternate(candidates, rounds, warm_up=2)
        ratios = [found[name].over(found["plain"]) for name in ("anew", "again") if "plain" in found]
        table.row(subject.name, *(samples.times(MS) for samples in found.values()), *ratios)


def show_calls(subjects: list[Subject], rounds: int) -> None:
    """Print what a cached call costs the host until the device has its program."""
    print()
    headings = ["backprop()", "plain gradient", "ratio", "Function()", "plain forward", "ratio"]
    table = Table(["cached call, us", *headings], width=24)
    for subject in subjects:
        if subject.plain is None or subject.plain_forward is None:
            continue
        calls = {
            "backprop": partial(subject.backprop, rebuild=False),
            "gradient": subject.plain,
            "function": subject.function,
            "forward": subject.plain_forward,
        }
        candidates = {name: partial(handed_over, call) for name, call in calls.items()}
        found = alternate(candidates, 10 * rounds, warm_up=5)
        cells: list[Any] = []
        for ours, plain in (("backprop", "gradient"), ("function", "forward")):
            cells += [found[ours].times(US), found[plain].times(US), found[ours].over(found[plain])]
        table.row(subject.name, *cells)


def show_compiling(subjects: list[Subject]) -> None:
    """Print what compiling costs before the first run."""
    print()
    table = Table(["first compile, s", "traced", "compiled", "plain JAX", "ratio"], width=24)
    for subject in subjects:
        traced, compiled = subject.compiled.trace_seconds, subject.compiled.compile_seconds
        cells = [traced, compiled]
        if subject.plain is not None:
            cells += [subject.plain_seconds, (traced + compiled) / subject.plain_seconds]
        table.row(subject.name, *cells)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nodes",
        type=positive,
        nargs="+",
        default=[100, 300, 1000, 5000],
        help="of the chains (%(default)s)",
    )
    parser.add_argument("--rounds", type=positive, default=15, help="of the runs (%(default)s)")
    parser.add_argument("--chains-only", action="store_true", help="leave the models' graphs out")
    given = parser.parse_args()
    # Programs must be compiled here, not read from a cache.
    jax.config.update("jax_enable_compilation_cache", False)
    devices.start()
    print_machine(rounds=given.rounds)
    workloads = [chain(nodes) for nodes in given.nodes]
    if not given.chains_only:
        workloads += [transformer(), gru(16), gru(128)]
    subjects = [Subject(workload) for workload in workloads]
    show_recording(subjects)
    show_runs(subjects, given.rounds)
    show_calls(subjects, given.rounds)
    show_compiling(subjects)


if __name__ == "__main__":
    main()
