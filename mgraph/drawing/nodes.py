"""What a picture shows of a tape: nodes, including those in loop bodies, and the wires between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..node import ArgumentNode, Node
from ..ops.loop import Body
from ..ops.scan import ScanNodeOp
from ..places import Place
from ..recording import spec_over
from ..specs import Specs
from ..structure import INPUT, is_leaf
from ..tape import Tape


@dataclass
class Drawn:
    """A node of a picture. In the body of a loop, which keeps no nodes, it stands for a row."""

    key: str
    """Its number on the tape; in the body of loop 17, the loop's number and the row: ``17.3``."""
    type: str
    color: str
    form: str
    spec: Specs
    trainable: bool
    name: str = ""
    is_checkpoint: bool = False
    fields: dict[str, Any] = field(default_factory=dict)
    children: list[str] = field(default_factory=list)
    """Keys of the nodes that it is computed from, in order."""
    where: Place | None = None
    loop: str = ""
    """The key of the loop in whose body it is."""
    is_loop: bool = False
    """Whether it is drawn as a box around its body."""

    @property
    def is_leaf(self) -> bool:
        return not self.children

    @property
    def number(self) -> str:
        """``id/trainable``, as Marian's pictures have it."""
        return f"{self.key}/{int(self.trainable)}"


Wire = tuple[str, str]
"""The keys of a node and of a node that uses it."""


def drawn_nodes(tape: Tape[Node]) -> tuple[dict[str, Drawn], list[Wire]]:
    """All nodes of a tape and of the bodies of its loops by key, in the order of recording, and all wires.

    The wires of a loop lead to and from the nodes of its body, not to the loop itself.
    """
    nodes: dict[str, Drawn] = {}
    wires: list[Wire] = []
    results: dict[str, list[str]] = {}
    for recorded in tape.nodes:
        drawn = _drawn(recorded)
        nodes[drawn.key] = drawn
        if drawn.is_loop:
            results[drawn.key] = _open(drawn, recorded.operator, nodes, wires)
        else:
            wires += [(source, drawn.key) for source in _sources(drawn, results)]
    names = {key: node.name for key, node in nodes.items() if node.name}
    for key, node in nodes.items():
        if node.loop and not node.name and len(node.children) == 1 and node.type == ArgumentNode.type:
            node.name = names.get(node.children[0], "")
            names[key] = node.name
    return nodes, wires


def _drawn(node: Node) -> Drawn:
    name = "" if node.name == "none" else node.name
    return Drawn(
        str(node.id),
        node.type,
        node.color,
        node.form,
        node.spec,
        node.trainable,
        name=name,
        is_checkpoint=node.is_checkpoint,
        fields=_fields(node.operator),
        children=[str(child.id) for child in node.children],
        where=node.where,
        is_loop=isinstance(node, ScanNodeOp),
    )


def _fields(operator: Any) -> dict[str, Any]:
    if operator is None:
        return {}
    values = {name: getattr(operator, name) for name in operator.fields}
    return {name: value for name, value in values.items() if not isinstance(value, Body)}


def _sources(drawn: Drawn, results: dict[str, list[str]]) -> Iterator[str]:
    """The nodes whose values a node uses; in place of a loop, the nodes of its body that give its outputs."""
    for child in drawn.children:
        if child not in results:
            yield child
        elif "index" in drawn.fields:
            yield results[child][drawn.fields["index"]]
        else:
            yield from results[child]


def _open(loop: Drawn, operator: Any, nodes: dict[str, Drawn], wires: list[Wire]) -> list[str]:
    """Add the body of a loop; returns the keys of its outputs."""
    body = operator.body
    rows = body.structure.rows
    trainable = body.structure.trainable()
    found: list[Specs] = []
    results: dict[str, list[str]] = {}
    arguments = _arguments(loop, len(body.states), operator.sequences)
    for i, row in enumerate(rows):
        key = f"{loop.key}.{i}"
        if is_leaf(row):
            name, child = next(arguments) if row[0] is INPUT else ("", "")
            drawn = Drawn(key, ArgumentNode.type, "white", "diamond", row[1], trainable[i], name=name)
            if row[0] is not INPUT:
                drawn.type = "const"
            drawn.children = [child] if child else []
            wires += [(child, key)] if child else []
        else:
            head, children = row[0], [f"{loop.key}.{k}" for k in row[1:]]
            given = tuple(found[k] for k in row[1:])
            drawn = Drawn(key, head.type, head.color, head.form, spec_over(head, given), trainable[i])
            drawn.fields, drawn.children = _fields(head), children
            drawn.is_loop = isinstance(head, ScanNodeOp)
            nodes[key] = drawn
            if drawn.is_loop:
                results[key] = _open(drawn, head, nodes, wires)
            else:
                wires += [(source, key) for source in _sources(drawn, results)]
        drawn.loop = loop.key
        nodes[key] = drawn
        found.append(drawn.spec)
    return [f"{loop.key}.{i}" for i in (*body.states, *body.results)]


def _arguments(loop: Drawn, states: int, sequences: int) -> Iterator[tuple[str, str]]:
    """What the leaves of a body stand for, and the outer nodes that they read."""
    for i, child in enumerate(loop.children):
        if i < states:
            yield f"state {i}", child
        elif i < states + sequences:
            yield f"step of {i - states}", child
        else:
            yield "", child
