"""Dynamic graphs: recording, the structure key, what a cached run costs on the host, and the first compile.

A chain of ``x = tanh(affine(x, W, b)) * 0.5 + x``, batch 32, dimension 64, with so many nodes, beside the
same function in plain JAX, differentiated by ``jax.value_and_grad`` and compiled. Then graphs as models make
them: a training step of a 6+6-layer transformer, a GRU over 16 and over 128 steps.

Marian in C++ has no such loop to be called from here. Version 1.12 needed 2 ms to record the chain of 2,000
nodes and 42 ms for its backprop, on two AVX-512 cores on which plain JAX's compiled run took 15 ms.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import layers
import mgraph
from benchmarks.measuring import Samples, Table, alternate, positive, print_machine
from mgraph import ExpressionGraph, Node, inits
from nmt import devices
from nmt.model_options import parse_model_options
from nmt.models import Source, create_model

BATCH, DIM, WEIGHTS = 32, 64, 8
US, MS = 1e6, 1e3


class Workload(NamedTuple):
    """A graph, and the same in plain JAX if that is written here."""

    name: str
    record: Callable[[ExpressionGraph], Node]
    plain: Callable[[dict[str, Any]], Any] | None = None
    """Value and gradients by parameters of the graph's names."""


def chain(nodes: int) -> Workload:
    """The chain of about so many nodes; four of them are a link."""
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

    def plain(params: dict[str, Any]) -> Any:
        x = jnp.full((BATCH, DIM), 0.1, jnp.float32)
        return jax.value_and_grad(loss, has_aux=True)(params, x)

    return Workload(f"chain of {nodes:,}", record, plain)


def gru(steps: int) -> Workload:
    """A GRU of 128 units over so many steps, batch 16."""

    def record(graph: ExpressionGraph) -> Node:
        xs = graph.constant((steps, 16, 128), inits.from_value(0.1))
        cell = layers.GRU(graph, "gru", dim_input=128, dim_state=128)
        states = layers.RNN(graph, [cell])(xs).output
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
        state = model.encode(graph, [Source(words, graph.ones((batch, length)))])
        logits = model.logits(graph, state, words)
        return mgraph.sum(mgraph.flatten(mgraph.cross_entropy(logits, ids, 0.1)))

    return Workload("transformer, 6+6 layers", record)


class Subject:
    """A workload on a graph of its own, compiled."""

    def __init__(self, workload: Workload) -> None:
        self.name, self._record = workload.name, workload.record
        self._graph = ExpressionGraph()
        before = mgraph.compile_stats()
        self.backprop(rebuild=True)
        self.compiled = mgraph.compile_stats() - before
        self.nodes = len(self._graph.tape.nodes)
        self.plain: Callable[[], Any] | None = None
        self.plain_seconds = 0.0
        if workload.plain is not None:
            params = self._graph.params().vals()
            start = time.perf_counter()
            program = jax.jit(workload.plain).lower(params).compile()
            self.plain_seconds = time.perf_counter() - start
            self.plain = lambda: program(params)

    def record(self) -> float:
        """Seconds to forget the graph and record it anew."""
        start = time.perf_counter()
        self._graph.clear()
        self._record(self._graph)
        return time.perf_counter() - start

    def key(self) -> float:
        """Seconds to make and hash the key of what is recorded."""
        start = time.perf_counter()
        hash(self._graph.tape.structure())
        return time.perf_counter() - start

    def backprop(self, rebuild: bool) -> Any:
        """The gradients, of what is recorded or of a graph that is recorded anew."""
        if rebuild:
            self.record()
        self._graph.backprop()
        return [node.grad() for node in self._graph.params().trainable().values()]

    def rebuilt_programs(self) -> int:
        """How many programs a graph that is recorded anew compiles."""
        before = mgraph.compile_stats()
        self.backprop(rebuild=True)
        return (mgraph.compile_stats() - before).misses


def dispatched(subject: Subject) -> tuple[Samples, Samples]:
    """Seconds until ``backprop()`` and plain JAX have handed their program to the device.

    The wait for what it computes is not counted, unless JAX computes small programs at once, which then both
    do.
    """

    def ours() -> float:
        start = time.perf_counter()
        gradients = subject.backprop(rebuild=False)
        seconds = time.perf_counter() - start
        jax.block_until_ready(gradients)
        return seconds

    def peer() -> float:
        assert subject.plain is not None
        start = time.perf_counter()
        result = subject.plain()
        seconds = time.perf_counter() - start
        jax.block_until_ready(result)
        return seconds

    found = alternate({"ours": ours, "plain": peer}, rounds=20)
    return found["ours"], found["plain"]


def show_recording(subjects: list[Subject]) -> None:
    """Print what recording and the key cost."""
    table = Table(["recording", "nodes", "us a node", "key: us a node", "nodes/s", "programs anew"], width=24)
    for subject in subjects:
        seconds = alternate({"record": subject.record, "key": subject.key}, rounds=15)
        each = {name: found.times(US / subject.nodes) for name, found in seconds.items()}
        table.row(
            subject.name,
            subject.nodes,
            each["record"],
            each["key"],
            seconds["record"].rates(subject.nodes),
            subject.rebuilt_programs(),
        )


def show_runs(subjects: list[Subject], rounds: int) -> None:
    """Print what a run costs once it is compiled."""
    print()
    table = Table(["run, ms", "recorded anew", "again", "plain JAX", "anew/plain", "again/plain"], width=24)
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


def show_dispatch(subjects: list[Subject]) -> None:
    """Print what a cached run costs besides what the device computes."""
    print()
    table = Table(["handed over, ms", "again", "plain JAX", "more: us a node"], width=24)
    for subject in subjects:
        if subject.plain is not None:
            ours, plain = dispatched(subject)
            more = Samples(
                tuple(US * (a - b) / subject.nodes for a, b in zip(ours.values, plain.values, strict=True))
            )
            table.row(subject.name, ours.times(MS), plain.times(MS), more)


def show_compiling(subjects: list[Subject]) -> None:
    """Print what the first run costs."""
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
        "--nodes", type=positive, nargs="+", default=[100, 1000, 5000], help="of the chains (%(default)s)"
    )
    parser.add_argument("--rounds", type=positive, default=15, help="of the runs (%(default)s)")
    parser.add_argument("--chains-only", action="store_true", help="leave the models' graphs out")
    given = parser.parse_args()
    # What is compiled here is compiled in earnest.
    jax.config.update("jax_enable_compilation_cache", False)
    devices.start()
    print_machine(rounds=given.rounds)
    workloads = [chain(nodes) for nodes in given.nodes]
    if not given.chains_only:
        workloads += [transformer(), gru(16), gru(128)]
    subjects = [Subject(workload) for workload in workloads]
    show_recording(subjects)
    show_runs(subjects, given.rounds)
    show_dispatch(subjects)
    show_compiling(subjects)


if __name__ == "__main__":
    main()
