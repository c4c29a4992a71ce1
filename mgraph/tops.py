"""The top of a graph: the node whose gradients ``backward()`` computes."""

from __future__ import annotations

from .errors import GraphError
from .node import Node
from .places import place
from .specs import has_float
from .tape import Tape


def candidates(tape: Tape[Node]) -> list[Node]:
    """The trainable nodes that no other trainable node uses.

    A node that is not trainable (a ``stop_gradient``, a comparison) neither hides what it uses nor is a top
    itself, and ``remove_as_root`` excludes a node.
    """
    trainable = [n for n in tape.nodes if n.trainable]
    hidden = {child.id for n in trainable for child in n.children} | tape.not_roots
    tops = [n for n in trainable if n.id not in hidden and n.children and has_float(n.spec)]
    if len(tops) > 1:
        tops = [n for n in tops if n.type != "tupleView"] or tops
    if len(tops) > 1:
        below = {top: tape.below([top.id]).row_of for top in tops}
        tops = [n for n in tops if not any(n.id in below[top] for top in tops if top is not n)]
    return tops


def one_top(tape: Tape[Node]) -> int:
    """The only candidate; ``GraphError`` if there is none, or several, which it names."""
    tops = candidates(tape)
    if not tops:
        raise GraphError(
            "backward() needs a trainable top node, but no node depends on a trainable parameter"
        )
    if len(tops) > 1:
        listed = "".join(f"\n  {_line(n)}" for n in tops)
        raise GraphError(f"backward() needs one top node, there are {len(tops)}:{listed}")
    if isinstance(tops[0].spec, tuple):
        raise GraphError(f"the top node has several outputs; take one of them: {_line(tops[0])}")
    return tops[0].id


def _line(node: Node) -> str:
    return f"{node.type} {node.name!r} {node.spec!r} (id {node.id}) made at {place(node.where)}"
