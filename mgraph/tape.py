"""``Tape``: what has been recorded, in order.

A tape holds nodes and their *rows*: the structure that programs are made from.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import jax
import numpy as np

from .errors import GraphError
from .specs import Specs
from .structure import INPUT, Excerpt, Row, Structure, is_leaf


class Graph(Protocol):
    """What nodes, layers and other users of a graph require of it.

    ``ExpressionGraph``, which is built on nodes, implements it.
    """

    tape: Any
    """The present tape."""
    recording: list[Any]
    """The tape and, while a loop's body is recorded, the tapes of the bodies that are open."""
    seed: int
    device: jax.Device | None
    has_gradients: bool
    strict_broadcasting: bool

    @property
    def covered(self) -> int: ...

    def is_inference(self) -> bool: ...

    def params(self) -> Any: ...

    def param(
        self, name: str, shape: Any, init: Any = None, type: Any = None, fixed: bool | None = None
    ) -> Any: ...

    def get(self, name: str) -> Any: ...

    def constant(self, shape: Any, init: Any = None, type: Any = None, *, name: str = "none") -> Any: ...

    def input(self, name: str, shape: Any, type: Any = None) -> Any: ...

    def ones(self, shape: Any, type: Any = None) -> Any: ...

    def zeros(self, shape: Any, type: Any = None) -> Any: ...

    def indices(
        self, values: Sequence[int] | np.ndarray, like: Any = None, axis: int | None = None
    ) -> Any: ...

    def dropout_mask(self, p: float, shape: Any, type: Any = None) -> Any: ...

    def value_of(self, row: int) -> Any: ...

    def gradient_of(self, row: int) -> jax.Array: ...

    def forget_gradients(self) -> None: ...


class Recorded(Protocol):
    """What a tape requires of its nodes."""

    id: int
    spec: Specs
    trainable: bool
    _trainable: bool
    _tape: Any


N = TypeVar("N", bound=Recorded)


class Tape(Generic[N]):
    """Nodes in the order of recording, for one graph or for the body of a loop.

    Nodes point to their tape weakly and the tape points to its graph weakly, so that an unreferenced graph is
    freed immediately, without the garbage collector.
    """

    __slots__ = (
        "__weakref__", "argument", "captured", "closed", "debugged", "graph_ref", "inputs", "nodes",
        "not_roots", "observers", "overrides", "parent", "random", "ref", "rewritings", "rows",
        "seen", "strict", "without_rule",
    )  # fmt: skip

    def __init__(self, graph: Graph, parent: Tape[N] | None = None, argument: type[N] | None = None) -> None:
        self.graph_ref = weakref.ref(graph)
        self.parent = parent
        self.strict: bool = graph.strict_broadcasting
        """Whether operators that broadcast expect children of equal shape."""
        self.argument: Any = argument
        """For a loop's body, the class of the leaves that stand for nodes from outside."""
        self.ref = weakref.ref(self)
        self.nodes: list[N] = []
        self.rows: list[Row] = []
        self.inputs: list[int] = []
        self.random: list[int] = []
        self.seen: dict[Row, N] = {}
        self.overrides: dict[int, bool] = {}
        self.debugged: list[N] = []
        self.observers: list[tuple[N, Callable[[N], Any]]] = []
        """Nodes, each with a function that is called with the node once it is computed."""
        self.not_roots: set[int] = set()
        self.without_rule: list[N] = []
        """Nodes of differentiable classes without a rule."""
        self.captured: dict[int, tuple[N, N]] = {}
        self.rewritings = 0
        """How often the nodes were rewritten, which may leave their number as it is."""
        self.closed = False
        """Whether the graph was cleared, or the loop of this body is complete."""

    def close(self) -> None:
        """Forget all nodes and values for good, even while the tape is still referenced."""
        self.closed = True
        for kept in (
            self.nodes, self.rows, self.inputs, self.random, self.seen, self.overrides, self.debugged,
            self.observers, self.not_roots, self.without_rule, self.captured,
        ):  # fmt: skip
            kept.clear()

    @property
    def graph(self) -> Graph:
        graph = self.graph_ref()
        if graph is None:
            raise GraphError("the graph of this node is gone; keep a reference to the ExpressionGraph")
        return graph

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """If an error ends the ``with`` block, its nodes are not tops of the graph: no caller has them."""
        first = len(self.nodes)
        try:
            yield
        except BaseException:
            self._hide(range(first, len(self.nodes)))
            raise

    def hide_dead_ends(self, first: int, results: Iterable[N]) -> None:
        """Keep the nodes from ``first`` on that ``results`` do not need from becoming tops of the graph: they
        are internal to a function."""
        needed = self.below(node.id for node in results if node._tape is self.ref).row_of
        self._hide([i for i in range(first, len(self.nodes)) if i not in needed])

    def _hide(self, rows: Iterable[int]) -> None:
        """Keep nodes that no caller has from becoming tops of the graph."""
        for i in rows:
            self.not_roots.add(i)
            self.seen.pop(self.rows[i], None)  # recorded again, a row makes a new node, which may be a top

    def append_leaf(self, leaf: N, row: Row) -> None:
        """Record ``leaf`` as the next node."""
        leaf.id, leaf._tape = len(self.nodes), self.ref
        self.nodes.append(leaf)
        self.rows.append(row)
        (self.inputs if row[0] is INPUT else self.random).append(leaf.id)

    def spread_trainable(self, node: N) -> None:
        """After the flag of ``node`` has changed, whether gradients flow into each node that is built on it,
        as ``Structure.trainable`` says; quick, because other nodes keep their flags."""
        changed = {node.id}
        for k in range(node.id + 1, len(self.rows)):
            row = self.rows[k]
            if changed.isdisjoint(row[1:]) or is_leaf(row) or k in self.overrides:
                continue
            flows = row[0].differentiable and any(self.nodes[child]._trainable for child in row[1:])
            if flows != self.nodes[k]._trainable:
                self.nodes[k]._trainable = flows
                changed.add(k)

    def structure(self) -> Structure:
        """The whole tape as a hashable structure."""
        return Structure(tuple(self.rows), tuple(sorted(self.overrides.items())))

    def whole(self) -> Excerpt:
        """The whole tape as an excerpt."""
        return Excerpt(self.structure(), self.inputs, range(len(self.random)), range(len(self.rows)))

    def span(self, start: int, stop: int) -> Excerpt:
        """The rows from ``start`` to before ``stop``; earlier rows that they use become their inputs."""
        if start == 0 and stop == len(self.rows):
            return self.whole()
        return self.part(range(start, stop))

    def below(self, tops: Iterable[int]) -> Excerpt:
        """The rows that ``tops`` need."""
        needed: set[int] = set()
        pending = list(tops)
        while pending:
            row = pending.pop()
            if row not in needed:
                needed.add(row)
                if not is_leaf(self.rows[row]):
                    pending += self.rows[row][1:]
        return self.part(sorted(needed))

    def part(self, chosen: Iterable[int]) -> Excerpt:
        """The ``chosen`` rows, in order; other rows that they use become their inputs."""
        rows: list[Row] = []
        inputs: list[int] = []
        random: list[int] = []
        index: dict[int, int] = {}
        ordinals = {row: i for i, row in enumerate(self.random)}

        def add_leaf(k: int) -> None:
            index[k] = len(rows)
            if k in ordinals:
                random.append(ordinals[k])
                rows.append(self.rows[k])
            else:
                inputs.append(k)
                node = self.nodes[k]
                rows.append((INPUT, node.spec, node.trainable))

        for k in chosen:
            row = self.rows[k]
            if is_leaf(row):
                if k not in index:
                    add_leaf(k)
                continue
            for child in row[1:]:
                if child not in index:
                    add_leaf(child)
            index[k] = len(rows)
            rows.append((row[0], *[index[c] for c in row[1:]]))
        # The row of an input already has the node's present flag.
        overrides = tuple(
            (index[k], flag)
            for k, flag in sorted(self.overrides.items())
            if k in index and rows[index[k]][0] is not INPUT
        )
        return Excerpt(Structure(tuple(rows), overrides), inputs, random, index)

    def ancestry(self) -> list[Tape[N]]:
        """This tape, its parent, and so on up to the graph's tape."""
        chain: list[Tape[N]] = [self]
        while (parent := chain[-1].parent) is not None:
            chain.append(parent)
        return chain
