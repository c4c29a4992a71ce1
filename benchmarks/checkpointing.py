"""Checkpointing and the price of two calls. Run: python benchmarks/checkpointing.py

First table: what forward() and backward() cost in two calls, against backprop() in one; ratios of medians in
one run. Second: the memory of a step, by XLA's own analysis, and its time, with and without checkpoints, for
12 layers of a transformer's encoder.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Mapping

import jax

import mgraph
from layers import EncoderLayer, TransformerConfig
from mgraph import ExpressionGraph, Node, inits

LAYERS = 12
MIB = 1 << 20


def encoder(graph: ExpressionGraph, batch: int = 16, length: int = 64, dim: int = 256) -> Node:
    """The sum of squares of twelve encoder layers of 256, feed-forward 1,024, 8 heads, dropout 0.1."""
    config = TransformerConfig(dim=dim, heads=8, dim_ffn=1024, dropout=0.1, dropout_ffn=0.1)
    x: Node = graph.constant((batch, length, dim), inits.normal())
    for i in range(1, LAYERS + 1):
        x = EncoderLayer(graph, f"encoder_l{i}", config, LAYERS)(x, graph.zeros((batch, 1, 1, length)))
    return mgraph.sum(mgraph.flatten(x * x))


def finish(graph: ExpressionGraph) -> None:
    """Wait until the gradients are there."""
    jax.block_until_ready([node.grad() for node in graph.params().trainable().values()])


def median_ms(steps: Mapping[str, Callable[[], None]], repeats: int = 9) -> dict[str, float]:
    """The median time of each step in milliseconds; the steps take turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
        step()
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in times.items()}


def compare_calls() -> None:
    """One call for both passes, two calls, and two with the loss read in between."""

    # One graph for all: where the parameters of another lie in memory alone makes it faster or slower.
    graph = ExpressionGraph()

    def step(run: Callable[[ExpressionGraph, Node], None]) -> Callable[[], None]:
        def build_and_run() -> None:
            graph.clear()
            run(graph, encoder(graph, batch=4))
            finish(graph)

        return build_and_run

    def two_calls(graph: ExpressionGraph, top: Node) -> None:
        graph.forward()
        graph.backward()

    def loss_read(graph: ExpressionGraph, top: Node) -> None:
        graph.forward()
        top.scalar()
        graph.backward()

    times = median_ms(
        {
            "backprop()": step(lambda graph, top: graph.backprop()),
            "forward(), backward()": step(two_calls),
            "forward(), loss read, backward()": step(loss_read),
        }
    )
    whole = times["backprop()"]
    print(f"{'calls':34} {'ms':>8} {'ratio':>6}")
    for name, found in times.items():
        print(f"{name:34} {found:8.1f} {found / whole:6.2f}")


def compare_memory() -> None:
    """A step without checkpoints, with those of the layers, and cut into parts."""
    graphs = {}
    for name, parts in (("all values kept", 0), ("a checkpoint per layer", 1), ("4 parts", 4)):
        graph = graphs[name] = ExpressionGraph()
        encoder(graph)
        graph.set_checkpointing(parts > 0, parts=parts if parts > 1 else None)

    def step(graph: ExpressionGraph) -> Callable[[], None]:
        def run() -> None:
            graph.backprop()
            finish(graph)

        return run

    times = median_ms({name: step(graph) for name, graph in graphs.items()}, repeats=3)
    sizes = {name: graph.memory().temporaries / MIB for name, graph in graphs.items()}
    first = next(iter(graphs))
    print(f"\n{'step':24} {'temporaries MiB':>16} {'ratio':>6} {'ms':>8} {'ratio':>6}")
    for name in graphs:
        print(
            f"{name:24} {sizes[name]:16.1f} {sizes[name] / sizes[first]:6.2f} "
            f"{times[name]:8.1f} {times[name] / times[first]:6.2f}"
        )


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(
        f"jax {jax.__version__} on {jax.devices()[0].platform}, {platform.machine()}, Python "
        f"{platform.python_version()}\n"
    )
    compare_calls()
    compare_memory()


if __name__ == "__main__":
    main()
