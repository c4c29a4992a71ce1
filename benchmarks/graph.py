"""The engine at full size: recording, keys, compiling, running. Run: python benchmarks/graph.py

Rows: a chain of 2,000 nodes, a training step of a 6+6-layer transformer, a GRU over 16 and 128 steps. Each
graph is recorded and run twice; the second time nothing is compiled.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import jax
import numpy as np

import layers
import mgraph
from mgraph import ExpressionGraph, Node, inits
from nmt.model_options import parse_model_options
from nmt.models import Source, create_model

Record = Callable[[ExpressionGraph], Node]


def chain(graph: ExpressionGraph, repeats: int = 500) -> Node:
    """x = tanh(affine(x, W, b)) * 0.5 + x, batch 32, dimension 64: four nodes a repeat."""
    x = graph.constant((32, 64), inits.from_value(0.1))
    for i in range(repeats):
        w, b = graph.param(f"W{i % 8}", (64, 64)), graph.param(f"b{i % 8}", (1, 64), inits.zeros())
        x = mgraph.tanh(mgraph.affine(x, w, b)) * 0.5 + x
    return x


def gru(graph: ExpressionGraph, steps: int) -> Node:
    """A GRU of 128 units over so many steps, batch 16."""
    xs = graph.constant((steps, 16, 128), inits.from_value(0.1))
    cell = layers.GRU(graph, "gru", dim_input=128, dim_state=128)
    states = layers.RNN(graph, [cell])(xs).output
    return mgraph.sum(mgraph.flatten(states * states))


def transformer(graph: ExpressionGraph, batch: int = 8, length: int = 24) -> Node:
    """The loss of a training step of a transformer, 6+6 layers of 256, ffn 1024, 8 heads, 2,000 words."""
    ids = graph.indices([2 + i * 7 % 1900 for i in range(batch * length)])
    words = mgraph.reshape(ids, (batch, length))
    state = MODEL.encode(graph, [Source(words, graph.ones((batch, length)))])
    logits = MODEL.logits(graph, state, words)
    return mgraph.sum(mgraph.flatten(mgraph.cross_entropy(logits, ids, 0.1)))


MODEL = create_model(
    parse_model_options(
        "type: transformer\ndim-vocabs: [2000, 2000]\ndim-emb: 256\ntransformer-heads: 8\n"
        "transformer-dim-ffn: 1024\nenc-depth: 6\ndec-depth: 6\ntied-embeddings-all: true\n",
        "benchmark",
    )
)


def measure(name: str, record: Record) -> None:
    """Print what each stage of recording and running a graph costs, first and second time."""
    graph = ExpressionGraph()
    for attempt in ("first", "again"):
        graph.clear()
        before = mgraph.compile_stats()
        start = time.perf_counter()
        record(graph)
        recorded = time.perf_counter()
        hash(graph.tape.structure())
        keyed = time.perf_counter()
        graph.backprop()
        jax.block_until_ready([node.grad() for node in graph.params().values()])
        end = time.perf_counter()
        compiled = mgraph.compile_stats() - before
        nodes = len(graph.tape.nodes)
        running = end - keyed - compiled.trace_seconds - compiled.compile_seconds
        print(
            f"{name:24} {attempt:6} {nodes:6} {1e6 * (recorded - start) / nodes:10.1f} "
            f"{1e6 * (keyed - recorded) / nodes:8.2f} {compiled.misses:8} {compiled.trace_seconds:8.2f} "
            f"{compiled.compile_seconds:9.2f} {1e3 * running:9.1f}"
        )
    times = []
    for _ in range(5):
        start = time.perf_counter()
        graph.backprop()
        jax.block_until_ready([node.grad() for node in graph.params().values()])
        times.append(time.perf_counter() - start)
    print(f"{'':24} {'median run of 5':>15} {1e3 * float(np.median(times)):61.1f}")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(
        f"jax {jax.__version__} on {jax.devices()[0].platform}, {platform.machine()}, Python "
        f"{platform.python_version()}"
    )
    print(
        f"{'graph':24} {'':6} {'nodes':>6} {'us/node':>10} {'key us':>8} {'compiles':>8} {'trace s':>8} "
        f"{'compile s':>9} {'run ms':>9}"
    )
    measure("chain", chain)
    measure("transformer 6+6", transformer)
    for steps in (16, 128):
        measure(f"GRU, {steps} steps", lambda graph, steps=steps: gru(graph, steps))


if __name__ == "__main__":
    main()
