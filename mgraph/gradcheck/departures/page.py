"""The page: an examination of a loss as one self-contained HTML file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from ...drawing.page import filled, frame
from ...drawing.page import page as graph_page
from ...drawing.scene import Scene
from ..report import LossReport
from .nodes import LayerCheck, NodeCheck
from .text import ADJOINTS, COLUMNS, child_rows, errors_of, likenesses

_COLORING = {
    "button": "Gradients",
    "about": "Colour the nodes whose rules depart, and those whose adjoints are off because of them",
    "fact": "gradient",
}
_SPOILED = 1e-10
"""The relative error above which an adjoint counts as off."""


def departures_page(
    facts: str,
    nodes: Sequence[NodeCheck],
    departures: Sequence[NodeCheck],
    layers: Sequence[LayerCheck],
    ways: Mapping[str, Sequence[str]],
    parameters: LossReport,
    scene: Scene,
) -> str:
    """The text of the page; ``ways`` are the layers from each parameter to the operator that departs."""
    folder = files(__package__)
    parts = {
        "page.css": (folder / "page.css").read_text(encoding="utf-8"),
        "title": "Gradients, operator by operator",
        "facts": escape(facts),
        "departures": _departures(departures, len(nodes), ways),
        "picture": _picture(nodes),
        "layers": _head() + "\n".join(_layer(layer) for layer in layers),
        "parameters": _parameters(parameters),
        "graph": frame(
            graph_page(
                scene,
                "The graph of the loss",
                {node.key: _statistics(node) for node in nodes},
                _clusters(nodes),
                _COLORING,
            )
        ),
    }
    return filled((folder / "page.html").read_text(encoding="utf-8"), parts)


# ---------------------------------------------------------------- what departs


def _departures(nodes: Sequence[NodeCheck], count: int, ways: Mapping[str, Sequence[str]]) -> str:
    if not nodes:
        return f'<p class="verdict right">Each of {count} operators agrees with JAX.</p>'
    verb = "departs" if len(nodes) == 1 else "depart"
    lines = [f'<p class="verdict wrong">{len(nodes)} of {count} operators {verb} from JAX.</p>']
    lines += [_article(node) for node in nodes]
    if ways:
        rows = [(name, " ← ".join(way)) for name, way in ways.items()]
        lines.append("<details><summary><span>The paths of errors to parameters</span></summary>")
        lines += [_table(("parameter", "layers"), rows), "</details>"]
    return "\n".join(lines)


def _article(node: NodeCheck) -> str:
    head, *rows = child_rows(node.children)
    told = [node.place, *([node.problem] if node.problem else []), *likenesses(node)]
    return "\n".join(
        [
            "<article>",
            f"<h3>{escape(node.label)} in {escape(node.layer)}: {_verdict(node.verdict)}</h3>",
            *(f"<p>{escape(line)}</p>" for line in told),
            _table(head, rows) if rows else "",
            "</article>",
        ]
    )


# ---------------------------------------------------------------- layers and operators


def _head() -> str:
    cells = "".join(f"<span>{escape(c)}</span>" for c in ("layer", *COLUMNS, "verdict"))
    about = (
        "The largest relative differences: in float32 from float64, of values, adjoints by JAX and by rules; "
        "in float64 of rules from JAX, of all rules together and of each alone."
    )
    return f'<p class="faint">{about}</p>\n<div class="head">{cells}</div>\n'


def _layer(layer: LayerCheck) -> str:
    numbers = [layer.value, *(layer.adjoint(name) for name in ADJOINTS), layer.worst]
    cells = "".join(f"<span>{number(n)}</span>" for n in numbers)
    return "\n".join(
        [
            f"<details><summary><span>{escape(layer.name)}</span>{cells}"
            f"<span>{_verdict(layer.verdict)}</span></summary>",
            _table(
                ("operator", "value", "off", "adjoint", *COLUMNS[1:], "verdict"),
                [_operator(node) for node in layer.nodes],
            ),
            "</details>",
        ]
    )


def _operator(node: NodeCheck) -> tuple[str, ...]:
    """Magnitudes by JAX in float64, and how far the others are from them."""
    adjoint = node.adjoints.get("float64")
    value_off, *adjoints_off = errors_of(node)
    numbers = (
        node.value.size if node.value is not None else None,
        value_off,
        adjoint.size if adjoint is not None else max((c.adjoint for c in _float64(node)), default=None),
        *adjoints_off,
        node.worst,
    )
    return node.label, *map(number, numbers), node.verdict


def _float64(node: NodeCheck) -> Iterable[Any]:
    return (child.comparisons["float64"] for child in node.children if "float64" in child.comparisons)


def _parameters(report: LossReport) -> str:
    witnesses = ("float64", "float32", "rounding")
    rows = [
        (
            check.name,
            "×".join(map(str, check.shape)) or "scalar",  # noqa: RUF001
            number(check.gradient),
            *(number(check.differences.get(witness)) for witness in witnesses),
            check.verdict,
        )
        for check in report.checks
    ]
    head = ("parameter", "shape", "largest", "rule - jax", "in float32", "jax, float32 - float64", "verdict")
    title = f"{len(rows)} parameters, the worst first"
    return f"<details><summary><span>{title}</span></summary>\n{_table(head, rows)}\n</details>"


# ---------------------------------------------------------------- picture and graph

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 1150, 260, 60, 30
_SERIES = (
    ("a", "value in float32"),
    ("b", "adjoint by JAX in float32"),
    ("c", "adjoint by rules in float32"),
    ("d", "adjoint by rules in float64, from JAX"),
)


def _picture(nodes: Sequence[NodeCheck]) -> str:
    """A dot for each relative error of each operator, from the first recorded to the loss."""
    shown = [node for node in nodes if not node.loop]
    dots = []
    for k, node in enumerate(shown):
        x = _LEFT + (k + 0.5) * (_WIDTH - _LEFT) / len(shown)
        for (color, name), error in zip(_SERIES, errors_of(node), strict=True):
            if error:
                about = escape(f"{node.label} in {node.layer}: {name}, {error:.1e}")
                dots.append(
                    f'<circle class="{color}" cx="{x:.1f}" cy="{_y(error):.1f}" r="2.5">'
                    f"<title>{about}</title></circle>"
                )
    grid = [
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{_y(10.0**e):.1f}" y2="{_y(10.0**e):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{_y(10.0**e) + 4:.1f}" text-anchor="end">1e{e}</text>'
        for e in range(-16, 1, 4)
    ]
    axis = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">first recorded</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 8}" text-anchor="end">the loss</text>'
    )
    legend = "".join(f'<span class="{color}">{name}</span>' for color, name in _SERIES)
    return (
        f'<p class="legend">{legend}</p>\n<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Relative errors">{"".join(grid)}{axis}{"".join(dots)}</svg>'
    )


def _y(error: float) -> float:
    """The height of a relative error, on a logarithmic scale from 1e-17 to 10."""
    exponent = min(max(math.log10(error), -17.0), 1.0)
    return 8 + (1 - exponent) / 18 * (_HEIGHT - _BOTTOM - 8)


def _clusters(nodes: Sequence[NodeCheck]) -> dict[str, str]:
    """The nodes whose rules depart, those whose adjoints are off, and the others; the first are red."""
    spoiled = "is off because of another operator"
    kinds: dict[str, list[str]] = {"departs": [], "agrees": [], spoiled: []}
    for node in nodes:
        adjoint = node.adjoints.get("float64")
        off = adjoint is not None and not adjoint.relative <= _SPOILED
        kinds["departs" if not node.ok else spoiled if off else "agrees"].append(node.key)
    return {key: kind for kind, keys in kinds.items() for key in keys}


def _statistics(node: NodeCheck) -> list[dict[str, Any]]:
    """What the graph says about a node."""
    tables = []
    if node.value is not None:
        rows = [["largest", node.value.size], ["float32 off by", node.value.relative]]
        tables.append({"title": "Value", "rows": rows})
    if node.adjoints:
        names = ("by JAX, float32, off by", "by rules, float32, off by", "by rules, float64, off by")
        rows = [["largest", node.adjoints["float64"].size]]
        rows += [
            [name, node.adjoints[key].relative]
            for name, key in zip(names, ADJOINTS, strict=True)
            if key in node.adjoints
        ]
        tables.append({"title": "Adjoint", "rows": rows})
    for child in node.children:
        if (c := child.comparisons.get("float64")) is not None:
            rows = [["largest, by JAX", c.size], ["rule - JAX", c.difference], ["allowed", c.allowed]]
            rows += [] if c.agrees else [["JAX, worst element", c.expected], ["rule, there", c.found]]
            tables.append({"title": f"Gradient by {child.name}", "rows": rows})
    return tables


# ---------------------------------------------------------------- pieces


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["<table>", "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        cells = (_verdict(cell) if i == len(row) - 1 else escape(cell) for i, cell in enumerate(row))
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _verdict(text: str) -> str:
    wrong = any(word in text for word in ("WRONG", "UNSTABLE", "FAILS", "not finite"))
    kind = "wrong" if wrong else "right" if text == "ok" else ""
    return f'<span class="{kind}">{escape(text)}</span>' if kind else escape(text)


def number(value: float | None) -> str:
    """A number with two digits, nothing for ``None``."""
    return "" if value is None else f"{value:.1e}"
