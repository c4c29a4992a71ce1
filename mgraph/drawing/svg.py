"""Graphs as SVG, in Marian's look."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from html import escape

from .faces import FONT, SHAPE_SIZE, color_of, lines_of, node_size, pale, printable, summary_of, tint_of
from .layouts import layouts
from .nodes import Drawn
from .placing import Outline, WirePiece
from .scene import BOX, NODE, Box, Scene

_TIP = 7.0
_EDGE = 12.0


def svg(scene: Scene, folded: Collection[str] = ()) -> str:
    """The scene as the text of an SVG picture; boxes whose keys are in ``folded`` hide their contents.

    Values flow from top to bottom. Nodes are groups of the class ``node`` with their key as ``data-key``;
    wires are paths with the keys of their ends as ``data-from`` and ``data-to``.
    """
    return _Picture(scene, folded).text()


class _Picture:
    def __init__(self, scene: Scene, folded: Collection[str]) -> None:
        self.scene = scene
        self.layouts = layouts(scene, folded)

    def text(self) -> str:
        """The whole picture."""
        root = self.layouts[""].placed
        width, height = math.ceil(root.width + 2 * _EDGE), math.ceil(root.height + 2 * _EDGE)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" font-family="{FONT}" font-size="12">',
                f'<rect width="{width}" height="{height}" fill="#fff"/>',
                f'<g transform="translate({_EDGE:g} {_EDGE:g})">',
                *self._contents(self.scene.boxes[""]),
                "</g>",
                "</svg>",
                "",
            ]
        )

    def _contents(self, box: Box) -> Iterator[str]:
        """The contents of a box: wires first, so that nodes cover them."""
        outlines, placed = self.layouts[box.key].outlines, self.layouts[box.key].placed
        for key, pieces in zip(box.nets, placed.pieces, strict=True):
            if pieces:
                line = " ".join(map(wire_path, pieces))
                yield f'<path class="wire" data-from="{key}" fill="none" stroke="#7a828e" d="{line}"/>'
            for piece in pieces:
                if piece.target >= 0 and outlines[piece.target].has_tips:
                    yield (
                        f'<path class="tip" data-from="{key}" data-to="{box.items[piece.target].key}" '
                        f'fill="#7a828e" d="{_tip_path(piece)}"/>'
                    )
        for i, item in enumerate(box.items):
            x, y = placed.middles[i], placed.tops[i]
            if item.kind == NODE:
                yield self._node(self.scene.nodes[item.key], x, y)
            elif item.kind == BOX:
                yield from self._box(self.scene.boxes[item.key], outlines[i], x, y)

    def _box(self, box: Box, outline: Outline, x: float, y: float) -> Iterator[str]:
        tint = tint_of(box)
        left = x - outline.width / 2
        yield f'<g class="box" data-key="{box.key}" transform="translate({left:.1f} {y:.1f})">'
        yield (
            f'<rect width="{outline.width:.1f}" height="{outline.height:.1f}" rx="9" '
            f'fill="{pale(tint)}" stroke="{tint}" stroke-opacity="0.7"/>'
        )
        if outline.is_open:
            yield from self._contents(box)
            yield _text(box.title, 12, 19, 'font-size="13" font-weight="bold" fill="#333"' + _HALO)
        else:
            middle = outline.width / 2
            yield _text(box.title, middle, 22, 'font-size="15" font-weight="bold"' + _MIDDLE)
            yield _text(summary_of(self.scene, box), middle, 39, 'font-size="11" fill="#555"' + _MIDDLE)
        yield "</g>"

    def _node(self, node: Drawn, x: float, y: float) -> str:
        width, height = node_size(self.scene, node)
        form = node_outline(node.form, width, height)
        *label, shape = lines_of(self.scene, node)
        start = y + height / 2 - 7.5 * len(label) - 6.5
        lines = [_text(t, x, start + 15 * i + 12, _MIDDLE.strip()) for i, t in enumerate(label)]
        below = _text(
            shape, x, start + 15 * len(label) + 10, f'font-size="{SHAPE_SIZE}" fill="#444"' + _MIDDLE
        )
        pen = 3 if node.is_checkpoint else 1
        title = f"<title>{_clean(node.name or node.type)}</title>"
        return (
            f'<g class="node" data-key="{node.key}">{title}<path transform="translate({x:.1f} {y:.1f})" '
            f'd="{form}" fill="{color_of(node)}" stroke="#444" stroke-width="{pen}"/>'
            f"{''.join(lines)}{below}</g>"
        )


_MIDDLE = ' text-anchor="middle"'
_HALO = ' stroke="#fff" stroke-width="4" stroke-opacity="0.8" paint-order="stroke"'


def node_outline(form: str, width: float, height: float) -> str:
    """The path around a node, from the middle of its top."""
    w = width / 2
    if form == "diamond":
        return f"M0 0L{w:g} {height / 2:g}L0 {height:g}L{-w:g} {height / 2:g}Z"
    if form == "hexagon":
        right, left = f"H{w - 12:g}L{w:g} {height / 2:g}L{w - 12:g}", f"H{12 - w:g}L{-w:g} {height / 2:g}Z"
        return f"M{12 - w:g} 0{right} {height:g}{left}"
    return f"M{-w:g} 0H{w:g}V{height:g}H{-w:g}Z"


def wire_path(piece: WirePiece) -> str:
    """A piece of wire: straight down, or a curve that leaves and arrives upright."""
    x, across = f"{piece.x:.1f}", f"{piece.across:.1f}"
    if piece.end < piece.start:
        return _loop_path(piece)
    middle = f"{(piece.start + piece.end) / 2:.1f}"
    start, end = f"{piece.start:.1f}", f"{piece.end:.1f}"
    return f"M{x} {piece.top:.1f}V{start}C{x} {middle} {across} {middle} {across} {end}V{piece.bottom:.1f}"


def _loop_path(piece: WirePiece) -> str:
    """A wire upwards: out below, around on the right, in from above."""
    right, x, across = max(piece.x, piece.across) + 60, piece.x, piece.across
    return (
        f"M{x:.1f} {piece.start:.1f}C{x:.1f} {piece.start + 50:.1f} {right:.1f} {piece.start + 50:.1f} "
        f"{right:.1f} {(piece.start + piece.end) / 2:.1f}S{across:.1f} {piece.end - 50:.1f} "
        f"{across:.1f} {piece.end:.1f}"
    )


def _tip_path(piece: WirePiece) -> str:
    return f"M{piece.across:.1f} {piece.bottom:.1f}l{-_TIP / 2:g} {-_TIP:g}h{_TIP:g}Z"


def _clean(text: str) -> str:
    return escape(printable(text))


def _text(text: str, x: float, y: float, attributes: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{_clean(text)}</text>'
