"""The scene that all pictures are made from: a graph as boxes within boxes, each arranged in rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ..node import Node
from ..tape import Tape
from .groups import SEPARATOR, Path, group_paths
from .layering import LayeredRows, Net, arrange
from .nodes import Drawn, drawn_nodes

NODE, BOX, IN, OUT = "node", "box", "in", "out"


@dataclass(frozen=True)
class Item:
    """An entry in a row of a box: a node, an inner box, or a port, where a value enters or leaves the box.

    ``key`` is the key of the node, of the inner box, or of the node whose value enters or leaves.
    """

    kind: str
    key: str


@dataclass
class Box:
    """A group of nodes, the body of a loop, or the whole picture, whose key is empty.

    The key of a loop's box is the loop's key.
    """

    key: str
    title: str
    parent: str | None
    prefix: str = ""
    """The prefix of the names of a group's parameters."""
    items: list[Item] = field(default_factory=list)
    nets: dict[str, Net] = field(default_factory=dict)
    """The nets by the key of the node whose value they carry."""
    rows: LayeredRows = field(default_factory=lambda: LayeredRows([], []))
    kind: int = 0
    """A number shared by boxes of the same structure; 0 for a unique box."""

    def ports(self, kind: str) -> list[str]:
        """The keys of the values that enter (or leave), from left to right."""
        row = self.rows.rows[0 if kind == IN else -1]
        return [self.items[i].key for i in row if i >= 0 and self.items[i].kind == kind]


@dataclass
class Scene:
    """Nodes and boxes by key; a box comes after the box around it."""

    nodes: dict[str, Drawn]
    boxes: dict[str, Box]
    home: dict[str, str]
    """The box that each node is in; for a loop, the box around the loop's box."""

    def path(self, key: str) -> list[str]:
        """The keys of a box and of the boxes around it, from the outermost."""
        path = []
        at: str | None = key
        while at is not None:
            path.append(at)
            at = self.boxes[at].parent
        return path[::-1]

    def inside(self, box: Box) -> Iterator[Drawn]:
        """The nodes in a box and in its inner boxes."""
        for item in box.items:
            if item.kind == NODE:
                yield self.nodes[item.key]
            elif item.kind == BOX:
                if item.key in self.nodes:  # the box is a loop, which is a node, too
                    yield self.nodes[item.key]
                yield from self.inside(self.boxes[item.key])

    def name_in_box(self, node: Drawn) -> str:
        """The node's name without the prefix that the boxes around it show."""
        for key in reversed(self.path(self.home[node.key])):
            prefix = self.boxes[key].prefix
            rest = node.name.removeprefix(prefix)
            if prefix and rest != node.name and (m := SEPARATOR.match(rest)) and rest[m.end() :]:
                return rest[m.end() :]
        return node.name


def make_scene(tape: Tape[Node]) -> Scene:
    """A whole tape as boxes within boxes."""
    nodes, wires = drawn_nodes(tape)
    scene = Scene(nodes, {"": Box("", "", None)}, {})
    _add_boxes(scene)
    index = _add_items(scene)
    for wire in wires:
        _lead(scene, index, *wire)
    for box in reversed(scene.boxes.values()):
        _arrange(scene, box, {})
    for box in scene.boxes.values():
        if box.parent is not None:
            _arrange(scene, box, _columns_above(scene, box))
    _find_kinds(scene)
    return scene


def _add_boxes(scene: Scene) -> None:
    paths = group_paths(scene.nodes)
    keys: dict[Path, str] = {(): ""}
    for key, node in scene.nodes.items():
        if not node.loop:
            path = paths[key]
            for i in range(1, len(path) + 1):
                if path[:i] not in keys:
                    keys[path[:i]] = _add_group(scene, keys[path[: i - 1]], path[i - 1])
        scene.home[key] = node.loop or keys[path]
    for key, node in scene.nodes.items():
        if node.is_loop:
            title = f"{node.type} × {node.fields['length']}"  # noqa: RUF001
            scene.boxes[key] = Box(key, title, scene.home[key])


def _add_group(scene: Scene, parent: str, step: str) -> str:
    """A box for a group; returns its key."""
    around = scene.boxes[parent].prefix
    title = step.removeprefix(around)
    separator = SEPARATOR.match(title) if around and title != step else None
    key = f"g{len(scene.boxes)}"
    prefix = step.partition(" (")[0]
    scene.boxes[key] = Box(key, (title[separator.end() :] if separator else "") or step, parent, prefix)
    return key


Index = dict[str, dict[Item, int]]
"""For each box, the place of each item in ``Box.items``."""


def _add_items(scene: Scene) -> Index:
    """Add nodes and inner boxes to the boxes around them, in the order of their first recording."""
    index: Index = {key: {} for key in scene.boxes}
    for key, node in scene.nodes.items():
        if not node.is_loop:
            _item(scene, index, scene.home[key], Item(NODE, key))
        for outer, inner in pairwise(scene.path(key if node.is_loop else scene.home[key])):
            _item(scene, index, outer, Item(BOX, inner))
    return index


def _item(scene: Scene, index: Index, box: str, item: Item) -> int:
    """The item's place in a box; the item is added if it is not there yet."""
    place = index[box].setdefault(item, len(index[box]))
    if place == len(scene.boxes[box].items):
        scene.boxes[box].items.append(item)
    return place


def _lead(scene: Scene, index: Index, source: str, target: str) -> None:
    """Route a wire out of the boxes around its source and into those around its target."""
    up, down = scene.path(scene.home[source]), scene.path(scene.home[target])
    shared = sum(a == b for a, b in zip(up, down, strict=False))
    at = Item(NODE, source)
    for box in reversed(up[shared:]):
        _connect(scene, index, box, source, at, Item(OUT, source))
        at = Item(BOX, box)
    for box, inner in pairwise(down[shared - 1 :]):
        _connect(scene, index, box, source, at, Item(BOX, inner))
        at = Item(IN, source)
    _connect(scene, index, down[-1], source, at, Item(NODE, target))


def _connect(scene: Scene, index: Index, key: str, value: str, source: Item, target: Item) -> None:
    """Connect a value from one item of a box to another."""
    start, end = _item(scene, index, key, source), _item(scene, index, key, target)
    net = scene.boxes[key].nets.setdefault(value, Net(start, []))
    if target.kind == NODE or end not in net.targets:
        net.targets.append(end)


def _arrange(scene: Scene, box: Box, columns: dict[str, int]) -> None:
    """Put the items in rows; values enter in the order of ``columns``, unless it is empty."""
    first, last = ([i for i, item in enumerate(box.items) if item.kind == kind] for kind in (IN, OUT))
    first.sort(key=lambda i: columns.get(box.items[i].key, 0))
    number = {key: n for n, key in enumerate(box.nets)}
    entrances = {
        i: [number[key] for key in scene.boxes[item.key].ports(IN)]
        for i, item in enumerate(box.items)
        if item.kind == BOX
    }
    keep_first = bool(columns and first)
    box.rows = arrange(len(box.items), [*box.nets.values()], first, last, entrances, keep_first)


def _columns_above(scene: Scene, box: Box) -> dict[str, int]:
    """The order in which values reach a box: their places in the row above it."""
    around = scene.boxes[box.parent or ""]
    index = around.items.index(Item(BOX, box.key))
    row = next(r for r, row in enumerate(around.rows.rows) if index in row)
    above = {entry: i for i, entry in enumerate(around.rows.rows[row - 1])} if row else {}
    return {
        key: above.get(net.source, above.get(-1 - n, 0)) for n, (key, net) in enumerate(around.nets.items())
    }


def _find_kinds(scene: Scene) -> None:
    """Give boxes a shared number if they have equal items and rows, and inner boxes of equal kinds."""
    makes: dict[str, Hashable] = {}
    for key, box in reversed(scene.boxes.items()):
        inner = (makes[i.key] if i.kind == BOX else _face(scene, i) for i in box.items)
        makes[key] = (*inner, *map(tuple, box.rows.rows))
    alike = Counter(makes.values())
    numbers: dict[Hashable, int] = {}
    for key, box in scene.boxes.items():
        if alike[makes[key]] > 1:
            box.kind = numbers.setdefault(makes[key], len(numbers) + 1)


def _face(scene: Scene, item: Item) -> Hashable:
    return item.kind, scene.nodes[item.key].type if item.kind == NODE else ""
