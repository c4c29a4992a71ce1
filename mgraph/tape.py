"""``Tape``: what has been recorded, in order.

A tape holds nodes and, beside them, *rows*: the structure alone, made of operators, specs and positions.
Rows hold no value, name or node, so they can be the key of a compiled program and outlive the tape.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from .errors import GraphError
from .inits import Random
from .specs import is_wide

if TYPE_CHECKING:
    from .graph import ExpressionGraph
    from .node import Node
    from .running.run import Run


class Input:
    """The marker of a leaf whose value is handed to the program."""

    generic = None
    open_numbers = 0

    def __repr__(self) -> str:
        return "input"


INPUT = Input()
"""First entry of the row ``(INPUT, spec, trainable)``; a random leaf has its initialiser there."""

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Structure:
    """Rows of a program and the nodes whose trainability the user set by hand; hashable.

    A generic structure has operators and initialisers that take numbers, the runtime fields, as arguments.
    """

    rows: tuple[Row, ...]
    overrides: tuple[tuple[int, bool], ...] = ()

    is_canonical: ClassVar[bool] = True
    """Whether equal ones compute the same: rows hold operators, which do, and numbers of rows."""

    @cached_property
    def _hash(self) -> int:
        return hash((self.rows, self.overrides))

    def __hash__(self) -> int:
        return self._hash

    def trainable(self, inputs: tuple[bool, ...] | None = None) -> list[bool]:
        """For each row whether a gradient flows through it; ``inputs`` replaces the leaves' own flags."""
        flags: list[bool] = []
        overrides = dict(self.overrides)
        leaf = iter(inputs) if inputs is not None else None
        for i, row in enumerate(self.rows):
            head = row[0]
            if head is INPUT:
                flag = row[2] if leaf is None else next(leaf)
            elif is_leaf(row):
                flag = False
            else:
                flag = head.differentiable and any(flags[k] for k in row[1:])
            flags.append(overrides.get(i, flag))
        return flags

    @cached_property
    def _wide(self) -> bool:
        heads = {row[0] for row in self.rows}
        leaves = {head for head in heads if head is INPUT or isinstance(head, Random)}
        specs = {row[1] for row in self.rows if row[0] in leaves}
        return any(map(is_wide, specs)) or any(head.makes_wide() for head in heads - leaves)

    def is_wide(self) -> bool:
        """Whether a value in it is of a type that JAX keeps only while 64-bit types are enabled."""
        return self._wide

    def generic(self) -> tuple[Structure, tuple[float, ...]]:
        """The structure with its runtime numbers left open, and these numbers in the order of the rows."""
        found = [(i, row[0].generic) for i, row in enumerate(self.rows) if row[0].generic is not None]
        if not found:
            return self, ()
        rows = list(self.rows)
        for i, (family, _) in found:
            rows[i] = (family, *rows[i][1:])
        return Structure(tuple(rows), self.overrides), tuple(n for _, (_, numbers) in found for n in numbers)

    @cached_property
    def places(self) -> dict[int, slice]:
        """Where the numbers of a generic row stand among all."""
        places, start = {}, 0
        for i, (head, *_) in enumerate(self.rows):
            count = head.open_numbers
            if count:
                places[i] = slice(start, start + count)
                start += count
        return places

    @property
    def open_numbers(self) -> int:
        """How many numbers a generic structure takes."""
        return max((place.stop for place in self.places.values()), default=0)


def is_leaf(row: Row) -> bool:
    """Whether a row is an input or a random leaf rather than an operator with its children."""
    return row[0] is INPUT or isinstance(row[0], Random)


class Tape:
    """Nodes in the order of recording, for one graph or for the body of a loop.

    Nodes point to their tape weakly and the tape points to its graph weakly, so that a graph that nobody
    holds is freed at once, without waiting for the garbage collector.
    """

    __slots__ = (
        "__weakref__", "argument", "captured", "closed", "debugged", "graph_ref", "inputs", "nodes",
        "not_roots", "observers", "overrides", "parent", "prepared", "prepared_for", "random", "ref", "rows",
        "run", "seen", "without_rule",
    )  # fmt: skip

    def __init__(
        self, graph: ExpressionGraph, parent: Tape | None = None, argument: type[Node] | None = None
    ) -> None:
        self.graph_ref = weakref.ref(graph)
        self.parent = parent
        self.argument: Any = argument
        """For a loop's body, the class of the leaves that stand for nodes from outside."""
        self.ref = weakref.ref(self)
        self.nodes: list[Node] = []
        self.rows: list[Row] = []
        self.inputs: list[int] = []
        self.random: list[int] = []
        self.seen: dict[Row, Node] = {}
        self.overrides: dict[int, bool] = {}
        self.debugged: list[Node] = []
        self.observers: list[tuple[Node, Callable[[Node], Any]]] = []
        """Nodes and the functions that are called with them once they are computed."""
        self.not_roots: set[int] = set()
        self.without_rule: list[Node] = []
        """Nodes of classes that have no rule and do not say that they need none."""
        self.captured: dict[int, tuple[Node, Node]] = {}
        self.run: Run | None = None
        self.prepared: dict[Any, Any] = {}
        """What programs of the tape compute, kept by its run for a state of the tape."""
        self.prepared_for: Any = None
        self.closed = False
        """Whether the graph was cleared, or the loop whose body this is is complete."""

    def close(self) -> None:
        """Forget all nodes and values for good, whoever still holds the tape."""
        self.closed = True
        if self.run is not None:
            self.run.close()
        self.run = None
        for kept in (
            self.nodes, self.rows, self.inputs, self.random, self.seen, self.overrides, self.debugged,
            self.observers, self.not_roots, self.without_rule, self.captured, self.prepared,
        ):  # fmt: skip
            kept.clear()

    @property
    def graph(self) -> ExpressionGraph:
        graph = self.graph_ref()
        if graph is None:
            raise GraphError("the graph of this node is gone; keep a reference to the ExpressionGraph")
        return graph

    def append_leaf(self, leaf: Node, row: Row) -> None:
        """Record ``leaf`` as the next node."""
        leaf.id, leaf._tape = len(self.nodes), self.ref
        self.nodes.append(leaf)
        self.rows.append(row)
        (self.inputs if row[0] is INPUT else self.random).append(leaf.id)

    def structure(self) -> Structure:
        """The whole tape as a hashable structure."""
        return Structure(tuple(self.rows), tuple(sorted(self.overrides.items())))

    def whole(self) -> Excerpt:
        """The whole tape as an excerpt."""
        return Excerpt(self.structure(), self.inputs, range(len(self.random)), range(len(self.rows)))

    def span(self, start: int, stop: int) -> Excerpt:
        """The rows from ``start`` to before ``stop``; what they use from before becomes their inputs."""
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
        # The row of an input has the node's present flag already.
        overrides = tuple(
            (index[k], flag)
            for k, flag in sorted(self.overrides.items())
            if k in index and rows[index[k]][0] is not INPUT
        )
        return Excerpt(Structure(tuple(rows), overrides), inputs, random, index)

    def ancestry(self) -> list[Tape]:
        """This tape, its parent, and so on to the graph's own."""
        chain: list[Tape] = [self]
        while (parent := chain[-1].parent) is not None:
            chain.append(parent)
        return chain


@dataclass(frozen=True)
class Excerpt:
    """A part of a tape with rows numbered from 0, and where its rows come from."""

    structure: Structure
    inputs: Sequence[int]
    """For each input row, the tape's node whose value it takes."""
    random: Sequence[int]
    """For each random row, its number among the tape's random leaves."""
    row_of: Mapping[int, int] | range
    """The excerpt's row of a tape's node."""
