"""Graphs in the dot language, in Marian's look (``Node::graphviz`` in ``graph/node.h``)."""

from __future__ import annotations

from ..node import Node
from ..tape import Tape


def graphviz(tape: Tape[Node]) -> str:
    """All nodes of a tape, newest first, with edges from each node to its children.

    Labels are ``type``, the name if there is one, ``(id/trainable)``. Constants are white diamonds,
    parameters orange-red hexagons, unary operations yellow boxes, views grey; checkpoints have thick lines.
    """
    lines = ["digraph ExpressionGraph {", "rankdir=LR"]
    for node in reversed(tape.nodes):
        lines += _node_lines(node)
    return "\n".join([*lines, "}", ""])


def _node_lines(node: Node) -> list[str]:
    width = 3 if node.is_checkpoint else 1
    lines = [
        f'"{node.id}" [shape="{node.form}", label={node.label()}, style="filled", '
        f'penwidth={width}, fillcolor="{node.color}"];'
    ]
    lines += [f'"{node.id}" -> "{child.id}";' for child in node.children]
    return [*lines, ""]
