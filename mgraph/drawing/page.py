"""The page: a graph as one self-contained HTML file to zoom, search, fold and inspect."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from .faces import (
    COLORS,
    color_of,
    details,
    folded_size,
    lines_of,
    printable,
    shape_text,
    summary_of,
    tint_of,
)
from .layouts import Layout, layouts_by_depth, least_width
from .nodes import Drawn
from .scene import Box, Scene

FUSION = {"button": "Fusion", "about": "Colour the nodes that share a kernel", "fact": "kernel"}
"""The default description of clusters: kernels that several nodes are compiled into."""

_PLACE = re.compile(r"\{\{([\w.]+)\}\}")
_PARTS = ("page.css", "view.js", "crowd.js", "colors.js", "page.js")


def page(
    scene: Scene,
    title: str,
    statistics: Mapping[str, Any],
    clusters: Mapping[str, str],
    coloring: Mapping[str, str] = FUSION,
    times: Mapping[str, Any] | None = None,
) -> str:
    """The text of the page; the keys of ``statistics`` and ``clusters`` are keys of nodes.

    Statistics are lists of results of ``faces.summary``, or of ``{"title": ..., "rows": [[name, number],
    ...]}``. ``coloring`` describes the clusters and the button that shows them in colours. ``times`` are
    seconds, of ``nodes`` by key and of ``clusters`` by name, and ``about``, a text about them.
    """
    folder = files(__package__)
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in _PARTS}
    layouts = layouts_by_depth(scene)
    data = {
        "nodes": {key: _node_data(scene, node, statistics) for key, node in scene.nodes.items()},
        "boxes": {key: _box_data(scene, box, layouts[key]) for key, box in scene.boxes.items()},
        "clusters": dict(clusters),
        "coloring": dict(coloring),
        "times": {"nodes": {}, "clusters": {}, "about": "", **(times or {})},
    }
    parts |= COLORS
    parts["title"] = escape(printable(title))
    parts["scene"] = as_script(data)
    return filled((folder / "page.html").read_text(encoding="utf-8"), parts)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with each ``{{name}}`` replaced by the part of that name."""
    return _PLACE.sub(lambda found: parts[found[1]], template)


def frame(text: str, height: int = 640) -> str:
    """A page in a frame, isolated from the page around it, such as a notebook."""
    return (
        f'<iframe srcdoc="{escape(text)}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {height}px; border: 1px solid #ccc; border-radius: 6px"></iframe>'
    )


def as_script(data: Any) -> str:
    """JSON that is safe in a script element: nothing in it ends the element or opens a comment."""
    text = json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(data: Any) -> Any:
    """``data`` with infinities and NaNs, which JSON lacks, as text, and without characters that browsers
    reject."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {key: _plain(value) for key, value in data.items()}
    return [_plain(value) for value in data] if isinstance(data, list | tuple) else data


def _node_data(scene: Scene, node: Drawn, statistics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": node.type,
        "name": node.name,
        "lines": lines_of(scene, node),
        "form": node.form,
        "color": color_of(node),
        "shape": shape_text(node.spec),
        "children": node.children,
        "home": scene.home[node.key],
        "thick": node.is_checkpoint,
        "details": details(node),
        "statistics": statistics.get(node.key, []),
    }


def _box_data(scene: Scene, box: Box, layouts: list[Layout]) -> dict[str, Any]:
    summary = summary_of(scene, box)
    return {
        "title": box.title,
        "summary": summary,
        "folded": _rounded(*folded_size(box.title, summary)),
        "least": _rounded(least_width(box))[0],
        "parent": box.parent,
        "tint": tint_of(box),
        "items": [[item.kind, item.key] for item in box.items],
        "nets": [[key, net.source, net.targets] for key, net in box.nets.items()],
        "layouts": [_layout_data(box, layout) for layout in layouts],
    }


def _layout_data(box: Box, layout: Layout) -> dict[str, Any]:
    """The coordinates: top and bottom of each row; row, left, top, width and height of each item; for each
    piece of a net's wire its row, the entries it connects, and the x of both ends."""
    placed = layout.placed
    rank = {entry: r for r, row in enumerate(box.rows.rows) for entry in row}
    corners = zip(layout.outlines, placed.middles, placed.tops, strict=True)
    return {
        "size": _rounded(placed.width, placed.height),
        "rows": [_rounded(*bounds) for bounds in placed.rows],
        "items": [
            [rank[i], *_rounded(middle - outline.width / 2, top, outline.width, outline.height)]
            for i, (outline, middle, top) in enumerate(corners)
        ],
        "pieces": [
            [[piece.row, piece.source, piece.target, *_rounded(piece.x, piece.across)] for piece in pieces]
            for pieces in placed.pieces
        ],
    }


def _rounded(*numbers: float) -> list[float]:
    return [round(number, 1) for number in numbers]
