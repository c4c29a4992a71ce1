"""Pictures of graphs: SVG files, pages to explore, and what notebooks show."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..arrays import described, flag, text, whole
from ..errors import ArgumentError
from ..files.paths import path_text
from ..places import here
from ..running.profile import Profile
from ..tape import Graph, Tape
from .faces import color_of, printable
from .faces import statistics as all_statistics
from .page import frame, page
from .scene import make_scene
from .svg import svg

_FORMATS = frozenset(
    ".svg .svgz .html .htm .dot .gv .png .jpg .jpeg .gif .bmp .webp .tif .tiff .pdf .ps .eps".split()
)
"""Endings that tell other programs that a file is a picture or a page; on other files they would mislead."""


def draw(graph: Graph, path: str | os.PathLike[str] | None = None, *, depth: int | None = None) -> str:
    """The graph as SVG, in Marian's shapes and colours; also written to ``path`` if one is given.

    Nodes show type, name, (id/trainable) and shape; checkpoints have thick lines. Values flow from top to
    bottom. Boxes hold groups of nodes, formed by the prefixes of parameter names, and bodies of loops. Boxes
    inside ``depth`` other boxes are folded: 0 folds all, ``None`` folds none. Needs no other program.
    """
    scene = make_scene(_tape("draw", graph))
    depth = None if depth is None else whole("draw", "depth", depth)
    folded = [] if depth is None else [key for key in scene.boxes if key and len(scene.path(key)) > depth + 1]
    return _written(svg(scene, folded), path, "draw writes SVG", ".svg")


def html(
    graph: Graph,
    path: str | os.PathLike[str] | None = None,
    *,
    clusters: Mapping[int, str] | None = None,
    profile: Profile | None = None,
    statistics: bool = True,
    title: str = "Expression graph",
) -> str:
    """The graph as one HTML page that needs no network; also written to ``path`` if one is given.

    The page zooms, searches, and folds groups and loops. A click on a node shows type, fields, shape, element
    type, the line that made it and, after ``forward()``, statistics of its value; after ``backward()``, of
    its gradient, too. Values that no program returned are computed for this, node by node, unless
    ``statistics`` is off. ``clusters`` maps ids of nodes to names, such as the kernels that the nodes are
    compiled into, which the page can show in colours. With a ``profile`` from ``graph.profile()``, the page
    shows its kernels and shades nodes by their time.
    """
    scene = make_scene(_tape("html", graph))
    statistics, title = flag("html", "statistics", statistics), text("the title of a page", title)
    if not isinstance(profile, Profile | None):
        raise ArgumentError(f"html: expected graph.profile(), got {described(profile)}{here()}")
    if clusters is None:
        clusters = profile.clusters if profile else {}
    if not isinstance(clusters, Mapping) or not all(isinstance(c, str) for c in clusters.values()):
        raise ArgumentError(
            "html: expected clusters by the ids of nodes, such as graph.fusion_report().clusters, got "
            f"{described(clusters)}{here()}"
        )
    values = all_statistics(graph.tape.nodes[: graph.covered]) if statistics else {}
    names = {str(node): name for node, name in clusters.items()}
    written = page(scene, title, values, names, times=_times(profile) if profile else None)
    return _written(written, path, "html writes a page", ".html", ".htm")


def _times(profile: Profile) -> dict[str, Any]:
    wall = f"{1e6 * profile.wall:,.0f} µs a run, mean of {profile.runs}."
    about = f"{wall} A node has the time of all kernels that compute it."
    nodes = {str(node): seconds for node, seconds in profile.nodes.items()}
    return {"nodes": nodes, "clusters": profile.seconds, "about": about}


def graphviz(graph: Graph, path: str | os.PathLike[str] | None = None) -> str:
    """The graph in the dot language; also written to ``path`` if one is given.

    Nodes come in the order of recording, in the colours of ``draw``. Edges lead from children to the nodes
    that use them: values flow from top to bottom. Labels are ``type``, the name if there is one,
    ``(id/trainable)``.
    Constants are white diamonds, parameters red hexagons, unary operations yellow boxes, views grey;
    checkpoints have thick lines. Source: Marian, ``Node::graphviz``, whose edges lead the other way.
    """
    lines = ["digraph ExpressionGraph {", "rankdir=TB", 'node [style="filled", fontname="Helvetica"]']
    for node in _tape("graphviz", graph).nodes:
        width = 3 if node.is_checkpoint else 1
        lines.append(
            f'"{node.id}" [shape="{node.form}", label={printable(node.label())}, '
            f'penwidth={width}, fillcolor="{color_of(node)}"];'
        )
        lines += [*(f'"{child.id}" -> "{node.id}";' for child in node.children), ""]
    return _written("\n".join([*lines, "}", ""]), path, "graphviz writes text for dot -Tpng", ".dot", ".gv")


def repr_html(graph: Graph) -> str:
    """What a notebook shows for a graph: its page in a frame, without statistics, so that nothing runs."""
    return frame(html(graph, statistics=False))


def _tape(what: str, graph: Any) -> Tape[Any]:
    """The tape of a graph; ``ArgumentError`` for anything but a graph."""
    tape = getattr(graph, "tape", None)
    if not isinstance(tape, Tape):
        raise ArgumentError(f"{what}: expected a graph, got {described(graph)}{here()}")
    return tape


def _written(text: str, path: str | os.PathLike[str] | None, what: str, *suffixes: str) -> str:
    if path is not None:
        name = path_text(path)
        suffix = os.path.splitext(name)[1].lower()
        if suffix in _FORMATS and suffix not in suffixes:
            raise ArgumentError(f"{what}: expected a file that ends in {' or '.join(suffixes)}, got {name}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return text
