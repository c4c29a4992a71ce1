"""Checkpointing and the price of two calls, for 12 layers of a transformer's encoder.

First table: what forward() and backward() cost as two calls, compared with backprop() as one. Second: the
memory of a step, by XLA's own analysis, and its time, with and without checkpoints.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import jax

import mgraph
from benchmarks.measuring import Table, alternate, positive, print_machine
from layers import EncoderLayer, TransformerConfig
from mgraph import ExpressionGraph, Node, inits

LAYERS = 12
MIB = 1 << 20


def encoder(graph: ExpressionGraph, batch: int = 16, length: int = 64, dim: int = 256) -> Node:
    """The sum of squares after twelve encoder layers of 256, feed-forward 1,024, 8 heads, dropout 0.1."""
    config = TransformerConfig(dim=dim, heads=8, dim_ffn=1024, dropout=0.1, dropout_ffn=0.1)
    x: Node = graph.constant((batch, length, dim), inits.normal())
    for i in range(1, LAYERS + 1):
        x = EncoderLayer(f"encoder_l{i}", config, LAYERS)(x, graph.zeros((batch, 1, 1, length)))
    return mgraph.sum(mgraph.flatten(x * x))


def gradients(graph: ExpressionGraph) -> list[jax.Array]:
    """What a step computes."""
    return [node.grad() for node in graph.params().trainable().values()]


def compare_calls(rounds: int) -> None:
    """One call for both passes, two calls, and two with the loss read in between."""

    # One graph for all: with several, merely where their parameters lie in memory would change their speed.
    graph = ExpressionGraph()

    def step(run: Callable[[Node], None]) -> Callable[[], list[jax.Array]]:
        def build_and_run() -> list[jax.Array]:
            graph.clear()
            run(encoder(graph, batch=4))
            return gradients(graph)

        return build_and_run

    def two_calls(top: Node) -> None:
        graph.forward()
        graph.backward()

    def loss_read(top: Node) -> None:
        graph.forward()
        top.scalar()
        graph.backward()

    whole = "backprop()"
    times = alternate(
        {
            whole: step(lambda top: graph.backprop()),
            "forward(), backward()": step(two_calls),
            "forward(), loss read, backward()": step(loss_read),
        },
        rounds,
        warm_up=2,
    )
    table = Table(["calls", "ms", "ratio"])
    for name, found in times.items():
        table.row(name, found.times(1e3), found.over(times[whole]))


def compare_memory(rounds: int) -> None:
    """A step without checkpoints, with one per layer, and cut into parts."""
    graphs = {}
    for name, parts in (("all values kept", 0), ("a checkpoint per layer", 1), ("4 parts", 4)):
        graph = graphs[name] = ExpressionGraph()
        encoder(graph)
        graph.set_checkpointing(parts > 0, parts=parts if parts > 1 else None)

    def step(graph: ExpressionGraph) -> Callable[[], list[jax.Array]]:
        def run() -> list[jax.Array]:
            graph.backprop()
            return gradients(graph)

        return run

    times = alternate({name: step(graph) for name, graph in graphs.items()}, rounds)
    sizes = {name: graph.memory().temporaries / MIB for name, graph in graphs.items()}
    first = next(iter(graphs))
    print()
    table = Table(["step", "temporaries MiB", "ratio", "ms", "ratio"])
    for name, found in times.items():
        ratios = sizes[name] / sizes[first], found.over(times[first])
        table.row(name, sizes[name], ratios[0], found.times(1e3), ratios[1])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive, default=9, help="of the first table (%(default)s)")
    parser.add_argument("--memory-rounds", type=positive, default=3, help="of the second (%(default)s)")
    given = parser.parse_args()
    print_machine(rounds=given.rounds, layers=LAYERS)
    compare_calls(given.rounds)
    compare_memory(given.memory_rounds)


if __name__ == "__main__":
    main()
