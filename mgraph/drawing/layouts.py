"""Layouts: the boxes of a scene with coordinates, for pictures and pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .faces import folded_size, node_size, summary_of, text_width
from .placing import MARGIN, Outline, Placed, place
from .scene import BOX, IN, NODE, OUT, Box, Item, Scene


@dataclass(frozen=True)
class Layout:
    """A box with coordinates, and the outlines of its items."""

    outlines: list[Outline]
    placed: Placed


def layouts(scene: Scene, folded: Collection[str] = ()) -> dict[str, Layout]:
    """The layout of every box; boxes whose keys are in ``folded`` are folded."""
    found: dict[str, Layout] = {}
    for box in reversed(scene.boxes.values()):
        found[box.key] = _layout(scene, box, {key: found[key] for key in found if key not in folded})
    return found


def layouts_by_depth(scene: Scene) -> dict[str, list[Layout]]:
    """The layouts of every box with 0, 1, ... levels of its inner boxes open, until all are open."""
    found: dict[str, list[Layout]] = {}
    for box in reversed(scene.boxes.values()):
        inner = {item.key: found[item.key] for item in box.items if item.kind == BOX}
        deepest = max(map(len, inner.values()), default=0)
        found[box.key] = [
            _layout(scene, box, {k: every[min(depth, len(every)) - 1] for k, every in inner.items() if depth})
            for depth in range(deepest + 1)
        ]
    return found


def _layout(scene: Scene, box: Box, inner: Mapping[str, Layout]) -> Layout:
    """The layout of a box in which the boxes of ``inner`` are open."""
    outlines = [_outline(scene, item, inner) for item in box.items]
    nets = [*box.nets.values()]
    return Layout(outlines, place(box.rows, nets, [*box.nets], outlines, _title_width(box)))


def least_width(box: Box) -> float:
    """The width that an open box needs for its title."""
    return _title_width(box) + 2 * MARGIN


def _title_width(box: Box) -> float:
    return text_width(box.title, 13) if box.key else 0.0


def _outline(scene: Scene, item: Item, inner: Mapping[str, Layout]) -> Outline:
    if item.kind == NODE:
        node = scene.nodes[item.key]
        return Outline(*node_size(scene, node), is_leaf=node.is_leaf)
    if item.kind != BOX:
        return Outline(is_port=True)
    box = scene.boxes[item.key]
    if item.key not in inner:
        return Outline(*folded_size(box.title, summary_of(scene, box)), is_folded=True)
    placed = inner[item.key].placed
    ins, outs = (
        {b.key: placed.middles[i] - placed.width / 2 for i, b in enumerate(box.items) if b.kind == kind}
        for kind in (IN, OUT)
    )
    return Outline(placed.width, placed.height, ins, outs, is_open=True)
