"""Faces: the text, colours and sizes of nodes and boxes, and the details that a page shows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import GraphError
from ..node import Node
from ..places import place
from ..specs import Specs
from ..types import Type
from .nodes import Drawn
from .scene import Box, Scene

FONT = "Helvetica, Arial, sans-serif"

COLORS = {
    "white": "#ffffff",
    "yellow": "#fff09a",
    "orange": "#ffcb80",
    "orangered": "#ff9d7d",
    "grey": "#dcdfe4",
    "lightblue": "#b9dcf2",
}
"""Marian's colours, lightened so that black text is legible. Other colours are used as they are."""

TINTS = ["#3d7fd9", "#2a9d8f", "#9b5de5", "#d1495b", "#6a994e", "#bc6c25", "#0096c7", "#b5179e"]
"""Colours of boxes; boxes of the same kind share one."""

SHAPE_SIZE = 11
"""The font size of a node's last line; other lines have 12."""

_WIDTHS = {
    3: "ijl'|",
    4: " ,./:;I[]!tf\\",
    5: 'r()-{}"`*',
    7: "cksvxyzJ^",
    10: "wCDHNRUABEKPSVXY&",
    11: "GOQm",
    12: "M%W@",
}
_WIDTH = {c: width for width, text in _WIDTHS.items() for c in text}
_OTHERS = 7.8
_NO_TEXT, _MARK = "\x7f\ufffe\uffff", "\ufffd"
_SAFE_COLOR = re.compile(r"#?[A-Za-z0-9]+")


def color_of(node: Drawn | Node) -> str:
    """The colour that fills a node."""
    found = COLORS.get(node.color, node.color)
    return found if _SAFE_COLOR.fullmatch(found) else COLORS["orange"]


def tint_of(box: Box) -> str:
    """The colour of a box's border."""
    return TINTS[(box.kind - 1) % len(TINTS)] if box.kind else "#8b93a1"


def pale(color: str) -> str:
    """A colour ``#rrggbb`` mixed with white, for the background of a box."""
    parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - part) * 0.06):02x}" for part in parts)


def shape_text(spec: Specs) -> str:
    """The sizes of the axes, ``8×24×256``, for each output if there are several."""
    if isinstance(spec, tuple):
        return ", ".join(shape_text(part) for part in spec)
    return "×".join(map(str, spec.shape)) or "scalar"  # noqa: RUF001


def printable(text: str) -> str:
    """The text with a placeholder for each character that XML or a browser rejects."""
    if text.isprintable():
        return text
    return "".join(_MARK if c < " " or c in _NO_TEXT or "\ud800" <= c <= "\udfff" else c for c in text)


def lines_of(scene: Scene, node: Drawn) -> list[str]:
    """Marian's label (type, name, id/trainable), then the shape, with the element type unless float32."""
    name = scene.name_in_box(node)
    label = [node.type, f'"{name}" ({node.number})'] if name else [f"{node.type} ({node.number})"]
    return [*map(short, label), short(" ".join([shape_text(node.spec), *_other_types(node.spec)]))]


def _other_types(spec: Specs) -> list[str]:
    parts = spec if isinstance(spec, tuple) else (spec,)
    types = [part.type for part in parts]
    return [] if set(types) == {Type.float32} else [", ".join(kind.value for kind in dict.fromkeys(types))]


def summary_of(scene: Scene, box: Box) -> str:
    """What a folded box says about its contents."""
    inside = list(scene.inside(box))
    numbers = sum(
        math.prod(n.spec.shape) for n in inside if n.type == "param" and not isinstance(n.spec, tuple)
    )
    nodes = f"{len(inside)} nodes"
    return f"{nodes}, {short_number(numbers)} parameters" if numbers else nodes


def short_number(n: int) -> str:
    """A count in at most three digits: 263k, 1.58M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return str(n)


def text_width(text: str, size: float = 12) -> float:
    """The approximate width of a text in Helvetica."""
    return sum(_WIDTH.get(c, _OTHERS) if c < "\u1100" else 14.0 for c in text) * size / 12


def node_size(scene: Scene, node: Drawn) -> tuple[float, float]:
    """Width and height of a node around its lines."""
    *label, shape = lines_of(scene, node)
    width = max([text_width(line) for line in label] + [text_width(shape, SHAPE_SIZE)])
    height = 15.0 * len(label) + 13
    if node.form == "diamond":
        return math.ceil(width * 1.45 + 34), height * 1.5 + 12
    if node.form == "hexagon":
        return math.ceil(width + 34), height + 10
    return math.ceil(width + 22), height + 10


def folded_size(title: str, summary: str) -> tuple[float, float]:
    """Width and height of a folded box."""
    return math.ceil(max(text_width(title, 15) + 34, text_width(summary, 11)) + 28), 50.0


def short(text: str, most: int = 48) -> str:
    """A text, without its middle if it is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) + 1 :]}"


_FEW, _MOST = 6, 240


def details(node: Drawn) -> dict[str, str]:
    """Element type, trainability, fields and place of a node, as texts by name."""
    parts = node.spec if isinstance(node.spec, tuple) else (node.spec,)
    found = {"element type": ", ".join(part.type.value for part in parts)}
    found["trainable"] = "yes" if node.trainable else "no"
    if node.is_checkpoint:
        found["checkpoint"] = "yes"
    found.update({name: short(repr(value), _MOST) for name, value in node.fields.items()})
    if node.where is not None:
        found["made at"] = place(node.where)
    return found


def statistics(nodes: Sequence[Node]) -> dict[str, list[dict[str, Any]]]:
    """Statistics of the values of nodes that ``forward()`` has covered, by key, with one entry per output.

    A value that no program returned is computed now. Statistics of gradients, if any, follow those of values.
    """
    found = {}
    for node in nodes:
        values = _values(node)
        if values:
            found[str(node.id)] = values
    return found


def _values(node: Node) -> list[dict[str, Any]]:
    try:
        value: Any = node.val()
    except GraphError:  # the input of a function, which has no value
        return []
    found = [summary(part) for part in _outputs(value)]
    if node.trainable and node.graph.has_gradients:
        with suppress(GraphError):  # for nodes recorded, or absorbed by a rewrite, after backward()
            found += [
                {**summary(gradient), "gradient": True, "output": i}
                for i, gradient in enumerate(_outputs(node.grad()))
                if gradient is not None  # an index has no gradient
            ]
    return found


def _outputs(value: Any) -> tuple[Any, ...]:
    """The parts of a value or gradient, one for each output."""
    return value if isinstance(value, tuple) else (value,)


def summary(value: Any) -> dict[str, Any]:
    """Minimum, maximum, mean and l2 norm of the elements that are not NaN, and the number of NaNs.

    A small value's elements are included, as text.
    """
    wide = np.asarray(value).astype(np.float64).reshape(-1)
    numbers = wide[~np.isnan(wide)]
    found: dict[str, Any] = {"NaN": int(wide.size - numbers.size)}
    if numbers.size:
        found["min"], found["max"] = float(numbers.min()), float(numbers.max())
        with np.errstate(all="ignore"):
            found["mean"], found["l2 norm"] = float(numbers.mean()), float(np.sqrt(np.square(numbers).sum()))
    if wide.size <= _FEW:
        found["values"] = ", ".join(f"{x:.6g}" for x in wide)
    return found
