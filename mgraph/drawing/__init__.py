"""Pictures of graphs: SVG files, pages to explore, and what notebooks show."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..tape import Graph
from .faces import statistics as all_statistics
from .page import frame, page
from .scene import make_scene
from .svg import svg


def draw(graph: Graph, path: str | os.PathLike[str] | None = None, *, depth: int | None = None) -> str:
    """The graph as SVG, in Marian's shapes and colours; also written to ``path`` if one is given.

    Nodes say type, name, (id/trainable) and shape; checkpoints have thick lines. Values flow from top to
    bottom. Groups of nodes, by the prefixes of the names of parameters, and bodies of loops are boxes; those
    inside ``depth`` others are folded: 0 folds all, ``None`` none. Needs no other program.
    """
    scene = make_scene(graph.tape)
    folded = [] if depth is None else [key for key in scene.boxes if key and len(scene.path(key)) > depth + 1]
    return _written(svg(scene, folded), path)


def html(
    graph: Graph,
    path: str | os.PathLike[str] | None = None,
    *,
    clusters: Mapping[int, str] | None = None,
    statistics: bool = True,
    title: str = "Expression graph",
) -> str:
    """The graph as one HTML page that needs no network; also written to ``path`` if one is given.

    The page zooms, searches, and folds groups and loops; a click on a node shows type, fields, shape, element
    type, the line that made it and, if ``forward()`` has run, statistics of its value, of a parameter's
    gradient too. Values that no program returned are computed for this, unless ``statistics`` is off.
    ``clusters`` maps ids of nodes to names, say of the kernels that they are compiled into, which the page
    can show in colours.
    """
    scene = make_scene(graph.tape)
    values = all_statistics(graph.tape.nodes[: graph.covered]) if statistics else {}
    names = {str(node): name for node, name in (clusters or {}).items()}
    return _written(page(scene, title, values, names), path)


def graphviz(graph: Graph, path: str | os.PathLike[str] | None = None) -> str:
    """The graph in the dot language, as Marian draws it; also written to ``path`` if one is given.

    Nodes come newest first, with edges from each to its children. Labels are ``type``, the name if there is
    one, ``(id/trainable)``. Constants are white diamonds, parameters orange-red hexagons, unary operations
    yellow boxes, views grey; checkpoints have thick lines. Source: Marian, ``Node::graphviz``.
    """
    lines = ["digraph ExpressionGraph {", "rankdir=LR"]
    for node in reversed(graph.tape.nodes):
        width = 3 if node.is_checkpoint else 1
        lines.append(
            f'"{node.id}" [shape="{node.form}", label={node.label()}, style="filled", '
            f'penwidth={width}, fillcolor="{node.color}"];'
        )
        lines += [*(f'"{node.id}" -> "{child.id}";' for child in node.children), ""]
    return _written("\n".join([*lines, "}", ""]), path)


def repr_html(graph: Graph) -> str:
    """What a notebook shows of a graph: its page in a frame, without statistics, so that nothing runs."""
    return frame(html(graph, statistics=False))


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return text
