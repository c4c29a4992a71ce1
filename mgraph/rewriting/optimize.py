"""``optimize``: what is recorded, rewritten before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ..errors import ArgumentError, GraphError
from ..node import Node
from ..tape import Graph
from .draft import Draft
from .fixpoint import rewritten, tops
from .library import DEFAULT
from .report import Change, Report
from .rule import Rule

T = TypeVar("T")


def optimize(graph: Graph, rules: Sequence[Rule] = DEFAULT, keep: Iterable[Node] = ()) -> Report:
    """Rewrite what is recorded, before ``forward()``, by ``rules`` until none fits; returns what changed.

    Values and gradients stay what they are but for rounding, and for overflow that the rewritten form does
    not have. Nodes keep their identity, names, marks and places in the user's code; so does what a loop's
    body computes, which is rewritten too. A node that was absorbed can be read by ``val()``; its gradient is
    no longer computed apart, nor is that of a node one of whose uses was absorbed. Nodes in ``keep``, and
    those that are debugged, called back, checkpointed or frozen by hand, are not absorbed. Inputs, named
    constants and random nodes are not folded. The ``clip_value`` of ``backward`` cuts the gradients of the
    nodes that there are then.

    ``ArgumentError`` for rules or nodes that are none. ``GraphError`` after ``forward()``; if a replacement
    has not the shape, element type and trainability of what it replaces; and if the rules come to no end. The
    graph is then rewritten up to that point and valid.
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
    """``given`` as a list; ``ArgumentError`` unless it is one of things of the kind."""
    items = list(given) if isinstance(given, Iterable) else [given]
    wrong = [item for item in items if not isinstance(item, kind)]
    if wrong or not isinstance(given, Iterable):
        raise ArgumentError(f"optimize() expects a list of {what}, got {(wrong or items)[0]!r}")
    return items
