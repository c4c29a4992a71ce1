"""``optimize``: rewrites what is recorded, and the bodies of its loops, until no rule fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..arrays import is_series
from ..errors import ArgumentError, GraphError
from ..node import ArgumentNode, Node
from ..operators import find_operator
from ..ops.loop import Body
from ..ops.scan import ScanNodeOp
from ..recording import new_leaf, record
from ..structure import INPUT, is_leaf
from ..tape import Graph, Tape
from .draft import Draft
from .library import DEFAULT
from .rule import Change, Report, Rule

T = TypeVar("T")


def optimize(graph: Graph, rules: Sequence[Rule] = DEFAULT, keep: Iterable[Node] = ()) -> Report:
    """Rewrite the recorded graph, before ``forward()``, with ``rules`` until none fits; returns the changes.

    Values and gradients change only by rounding, and where the rewritten form avoids overflow. Nodes keep
    their identity, names, marks and places in the user's code. Bodies of loops are rewritten too. ``val()``
    still reads a node that was absorbed; its gradient is no longer available, nor is that of a node if one of
    its uses was absorbed. Nodes in ``keep``, with ``debug``, ``callback`` or ``checkpoint``, or frozen by
    hand, are not absorbed. Inputs, named constants and random nodes are not folded. The ``clip_value`` of
    ``backward`` applies to the gradients of the remaining nodes.

    ``ArgumentError`` for anything but rules and nodes. ``GraphError`` after ``forward()``; if a replacement
    lacks the shape, element type or trainability of the node that it replaces; and if the rules never end.
    The graph is then rewritten up to that point and valid.
    Source: nGraph, ``pass::GraphRewrite``.
    """
    tape = graph.tape
    if graph.recording[-1] is not tape:
        raise GraphError("optimize() is for a whole graph; it cannot be called within the body of a loop")
    if graph.covered:
        raise GraphError("optimize() comes before forward(); graph.clear() starts a new graph")
    rules = _listed(Rule, "rules", rules)
    kept = [node.current() for node in _listed(Node, "nodes to keep", keep)]
    if any(node.tape() is not tape for node in kept):
        raise GraphError("optimize() can keep nodes of its own graph only")
    draft = Draft(tape, tops(tape.nodes, tape.not_roots), kept)
    before = len(draft.operators())
    changes: list[Change] = []
    try:
        changes.extend(rewritten(draft, rules))
    finally:
        draft.finish()
    return Report(tuple(changes), before, len(draft.operators()))


def _listed(kind: type[T], what: str, given: Iterable[T]) -> list[T]:
    """``given`` as a list; ``ArgumentError`` unless it is an iterable of ``kind``."""
    items: list[Any] = list(given) if is_series(given) else [given]
    wrong = [item for item in items if not isinstance(item, kind)]
    if wrong or not is_series(given):
        raise ArgumentError(f"optimize() expects a list of {what}, got {(wrong or items)[0]!r}")
    return items


def tops(nodes: Sequence[Node], not_roots: Iterable[int] = ()) -> list[Node]:
    """The operators that no node uses."""
    used = {child for node in nodes for child in node.children}.union(nodes[i] for i in not_roots)
    return [n for n in nodes if n.children and n not in used]


def rewritten(draft: Draft, rules: Sequence[Rule]) -> Iterator[Change]:
    """Apply ``rules`` from the leaves up, until none fits any more; then to the bodies of loops.

    ``GraphError`` if that takes implausibly many changes.
    """
    table = Table(rules)
    limit = 100 + 20 * len(draft.users)
    count, before = 0, -1
    while count > before:
        before = count
        for node in draft.operators():
            while node in draft.users and (change := table.apply(draft, node)):
                yield change
                count += 1
                if count > limit:
                    raise GraphError(f"the rules do not terminate: the last of {count} changes was {change}")
    for node in draft.operators():
        if isinstance(node, ScanNodeOp):
            yield from _rewrite_body(draft, node, rules)


class Table:
    """Rules by the class of the node that they may rewrite."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [(rule, rule.pattern.heads()) for rule in rules]
        self._by_class: dict[type[Node], list[Rule]] = {}

    def apply(self, draft: Draft, node: Node) -> Change | None:
        """Apply the first rule that fits ``node``; ``None`` if none does."""
        cls = type(node)
        if cls not in self._by_class:
            self._by_class[cls] = [r for r, heads in self._rules if heads is None or cls in heads]
        for rule in self._by_class[cls]:
            for match in rule.pattern.matches(node):
                change = draft.apply(rule, match)
                if change is not None:
                    return change
        return None


def _rewrite_body(draft: Draft, loop: Node, rules: Sequence[Rule]) -> Iterator[Change]:
    """Apply ``rules`` to the body of a loop, which keeps its inputs in their order."""
    body: Body = loop.operator.body
    tape, nodes = _reopened(body, loop, draft.tape)
    inner = Draft(tape, [nodes[i] for i in (*body.states, *body.results)])
    changes = list(rewritten(inner, rules))
    if not changes:
        return
    inner.finish(readable=False)
    states, results = (tuple(nodes[i].id for i in rows) for rows in (body.states, body.results))
    fields = {name: getattr(loop.operator, name) for name in ScanNodeOp.fields}
    operator = find_operator(ScanNodeOp, fields | {"body": Body(tape.structure(), states, results)})
    draft.set_operator(loop, operator)
    yield from changes


def _reopened(body: Body, loop: Node, parent: Tape[Node]) -> tuple[Tape[Node], list[Node]]:
    """The body of a loop as nodes on a tape of their own, which the caller must keep alive."""
    tape = Tape(parent.graph, parent=parent, argument=ArgumentNode)
    nodes: list[Node] = []
    for row in body.structure.rows:
        head: Any = row[0]
        cls: Any = type(head)
        if head is INPUT:
            nodes.append(new_leaf(ArgumentNode, tape, row[1], row[2]))
        elif is_leaf(row):
            nodes.append(new_leaf(ArgumentNode, tape, row[1], False, init=head))
        else:
            nodes.append(record(cls, head, tuple(nodes[k] for k in row[1:])))
    for node, trainable in zip(nodes, body.structure.trainable(), strict=True):
        node._trainable, node.where = trainable, loop.where
    tape.overrides.update((nodes[i].id, flag) for i, flag in body.structure.overrides)
    return tape, nodes
