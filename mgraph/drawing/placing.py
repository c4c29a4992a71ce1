"""Placing: coordinates and wires for the rows of a box, given the sizes of its items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .layering import LayeredRows, Net, by_row

_SWEEPS = 6
_THIN = 8.0
_GAP, _THIN_GAP, _TWIN_GAP, _ROW_GAP = 18.0, 16.0, 12.0, 26.0
MARGIN, _HEADER = 18.0, 26.0


@dataclass
class Outline:
    """An item as seen by the box around it; a port has no size.

    ``ins`` and ``outs`` are where values enter an open box at its top and leave it at its bottom, relative to
    its middle. A folded box spreads its wires evenly; at a node all wires meet in the middle.
    """

    width: float = 0.0
    height: float = 0.0
    ins: dict[str, float] = field(default_factory=dict)
    outs: dict[str, float] = field(default_factory=dict)
    is_leaf: bool = False
    is_port: bool = False
    is_open: bool = False
    is_folded: bool = False

    @property
    def is_passed(self) -> bool:
        """Whether it is an open box that values both enter and leave."""
        return bool(self.ins and self.outs)

    @property
    def has_tips(self) -> bool:
        """Whether wires end here, in arrows, instead of continuing inside."""
        return not (self.is_open or self.is_port)


_BEND = Outline()


@dataclass
class WirePiece:
    """A piece of wire from one row to the next.

    It leads at ``x`` from ``top`` down to ``start``, then to ``across`` at ``end``, then down to ``bottom``.
    """

    x: float
    top: float
    start: float
    across: float
    end: float
    bottom: float
    row: int
    """The row that it starts from."""
    source: int
    target: int
    """The entries that it leads from and to, items or bends."""


@dataclass
class Placed:
    """The contents of a box; coordinates start at its top left corner."""

    width: float
    height: float
    middles: list[float]
    """The x of the middle of every item."""
    tops: list[float]
    rows: list[tuple[float, float]]
    """Top and bottom of every row."""
    pieces: list[list[WirePiece]]
    """The wire of every net."""


@dataclass
class _Cell:
    """An entry of a row: an item, or a bend, which is as thin as a port."""

    width: float
    is_leaf: bool = False
    x: float = 0.0
    above: list[_Link] = field(default_factory=list)
    below: list[_Link] = field(default_factory=list)

    @property
    def gap(self) -> float:
        return _THIN_GAP if self.width <= _THIN else _GAP


@dataclass
class _Link:
    """A piece of a net between an entry of a row and an entry of the next row, with where it touches them.

    ``shift`` is how far to the right of the upper entry's middle the lower entry's middle would like to be.
    """

    upper: _Cell
    lower: _Cell
    leaves: float
    enters: float
    shift: float
    weight: float
    net: int
    row: int
    source: int
    target: int


def place(
    layout: LayeredRows, nets: Sequence[Net], names: Sequence[str], outlines: Sequence[Outline], title: float
) -> Placed:
    """Coordinates for a box whose items have these outlines; ``names`` are the keys of the nets' values.

    ``title`` is the width of its heading, 0 for a picture without one.
    """
    cells = [[_cell(_BEND if e < 0 else outlines[e]) for e in row] for row in layout.rows]
    at = [dict(zip(row, found, strict=True)) for row, found in zip(layout.rows, cells, strict=True)]
    rank = {e: r for r, row in enumerate(layout.rows) for e in row if e >= 0}
    links: list[list[_Link]] = [[] for _ in nets]
    for n, net in enumerate(nets):
        down = [t for t in net.targets if (n, t) not in layout.upward]
        links[n] = _links(n, names[n], net.source, down, rank, outlines, at)
    _set_columns(cells)
    for outline, row, i in ((o, at[rank[i]], i) for i, o in enumerate(outlines) if o.is_folded):
        _spread(row[i].above, outline.width, up=True)
        _spread(row[i].below, outline.width, up=False)
    width = _center(cells, title)
    bounds, height = _set_rows(layout, outlines, [link for found in links for link in found], title)
    middles = [at[rank[i]][i].x for i in range(len(outlines))]
    tops = [_top(outline, *bounds[rank[i]]) for i, outline in enumerate(outlines)]
    pieces = [[_piece(link, outlines, tops, bounds) for link in found] for found in links]
    for n, target in layout.upward:
        source, name = nets[n].source, names[n]
        x, y = middles[source] + outlines[source].outs.get(name, 0.0), tops[source] + outlines[source].height
        across, end = middles[target] + outlines[target].ins.get(name, 0.0), tops[target]
        pieces[n].append(WirePiece(x, y, y, across, end, end, rank[source], source, target))
    return Placed(width, height, middles, tops, bounds, pieces)


def _cell(outline: Outline) -> _Cell:
    return _Cell(max(outline.width, _THIN), outline.is_leaf)


def _links(
    net: int,
    name: str,
    source: int,
    targets: Sequence[int],
    rank: dict[int, int],
    outlines: Sequence[Outline],
    at: list[dict[int, _Cell]],
) -> list[_Link]:
    """The pieces of one net, row by row: a trunk of bends with a branch to each target.

    The wires of leaves are light, to give way to those of operations. Trunks are heavy, to stay straight.
    """
    links = []
    first, lowest = rank[source], max((rank[t] for t in targets), default=0)
    uses, twins = Counter(targets), Counter[int]()
    reached = by_row(targets, rank)
    leaves, light = outlines[source].outs.get(name, 0.0), 0.02 if outlines[source].is_leaf else 1.0
    entry, bend, above = source, -1 - net, outlines[source]
    for r in range(first, lowest):
        for t in reached.get(r + 1, ()):
            twin = twins[t] - (uses[t] - 1) / 2
            twins[t] += 1
            enters = outlines[t].ins.get(name, 0.0) + _TWIN_GAP * twin
            shift, weight = _shift(above, outlines[t], leaves, enters), light * (0.2 if entry < 0 else 1.0)
            link = _Link(at[r][entry], at[r + 1][t], leaves, enters, shift, weight, net, r, entry, t)
            links.append(link)
        if r + 1 < lowest:
            shift, weight = _shift(above, _BEND, leaves, 0.0), 8.0 if entry < 0 else 0.5 * light
            link = _Link(at[r][entry], at[r + 1][bend], leaves, 0.0, shift, weight, net, r, entry, bend)
            links.append(link)
            entry, leaves, above = bend, 0.0, _BEND
    for link in links:
        link.upper.below.append(link)
        link.lower.above.append(link)
    return links


def _shift(upper: Outline, lower: Outline, leaves: float, enters: float) -> float:
    """The ``shift`` of a link. A stack of open boxes is aligned by their middles; aligned by its wires it
    would lean."""
    if upper.is_port or lower.is_port:
        return leaves - enters
    return (0.0 if upper.is_passed else leaves) - (0.0 if lower.is_passed else enters)


def _set_columns(rows: list[list[_Cell]]) -> None:
    """Move cells towards their neighbours above and below, keeping their order and room between them."""
    for row in rows:
        x = -sum(cell.width + _GAP for cell in row) / 2
        for cell in row:
            cell.x = x + cell.width / 2
            x += cell.width + _GAP
    for _ in range(_SWEEPS):
        for row in rows:
            _settle(row, up=True, down=False)
        for row in reversed(rows):
            _settle(row, up=False, down=True)
    for row in rows:
        _settle(row, up=True, down=True)
    for row in rows[1:]:
        _align(row)
    for row in rows[:-1]:
        _pool(row, [_near_use(cell) for cell in row])


def _align(row: list[_Cell]) -> None:
    """Put cells right below the cells that they continue, so that their wires are straight."""
    wishes = []
    for cell in row:
        link = _heaviest(cell.above)
        if link is not None and _heaviest(link.upper.below) is link:
            wishes.append((link.upper.x + link.shift, link.weight))
        else:
            wishes.append((cell.x, 0.1))
    _pool(row, wishes)


def _near_use(cell: _Cell) -> tuple[float, float]:
    """The wish of a cell: a leaf goes to where it is used; any other cell stays."""
    if not cell.is_leaf or not cell.below:
        return cell.x, 100.0
    return sum(link.lower.x - link.shift for link in cell.below) / len(cell.below), 0.1


def _heaviest(links: list[_Link]) -> _Link | None:
    """The link that is heavier than all others, if there is one."""
    weights = sorted((link.weight for link in links), reverse=True)
    if not weights or (len(weights) > 1 and weights[0] == weights[1]):
        return None
    return next(link for link in links if link.weight == weights[0])


def _settle(row: list[_Cell], up: bool, down: bool) -> None:
    """Move the cells of a row to the mean of their neighbours above, below, or both."""
    wishes = []
    for cell in row:
        wanted, weight = cell.x * 1e-3, 1e-3
        for link in cell.above if up else ():
            wanted += link.weight * (link.upper.x + link.shift)
            weight += link.weight
        for link in cell.below if down else ():
            wanted += link.weight * (link.lower.x - link.shift)
            weight += link.weight
        wishes.append((wanted / weight, weight))
    _pool(row, wishes)


def _pool(row: list[_Cell], wishes: list[tuple[float, float]]) -> None:
    """Move the cells as close as possible to their wishes, keeping their order and room between them.

    Wishes are pairs of a place and a weight. The weighted sum of squared distances from them is minimized by
    pooling cells that push each other: pool adjacent violators, Ayer et al. 1955.
    """
    blocks: list[tuple[float, float, int]] = []  # where the first cell goes, weight, number of cells
    offsets = [0.0]
    for left, cell in pairwise(row):
        offsets.append(offsets[-1] + (left.width + cell.width) / 2 + min(left.gap, cell.gap))
    for (wish, weight), offset in zip(wishes, offsets, strict=True):
        block = (wish - offset, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            (a, u, m), (b, v, n) = blocks.pop(), block
            block = ((a * u + b * v) / (u + v), u + v, m + n)
        blocks.append(block)
    starts = [x for x, _, count in blocks for _ in range(count)]
    for cell, x, offset in zip(row, starts, offsets, strict=True):
        cell.x = x + offset


def _spread(links: list[_Link], width: float, up: bool) -> None:
    """Give the wires of a folded box places along its top (or bottom), in the order of their other ends.

    A wire that is heavier than all others is in the middle.
    """
    ends: dict[int, list[float]] = {}
    for link in links:
        ends.setdefault(link.net, []).append(link.upper.x if up else link.lower.x)
    order = sorted(ends, key=lambda net: sum(ends[net]) / len(ends[net]))
    heaviest = _heaviest(links)
    middle = (len(order) - 1) / 2 if heaviest is None else order.index(heaviest.net)
    step = min(_TWIN_GAP, 0.4 * width / max(len(order) - 1, 1))
    for link in links:
        place = (order.index(link.net) - middle) * step
        if up:
            link.enters = place
        else:
            link.leaves = place


def _center(rows: list[list[_Cell]], title: float) -> float:
    """Move all cells into a box around them; returns its width."""
    left = min((c.x - c.width / 2 for row in rows for c in row), default=0.0)
    right = max((c.x + c.width / 2 for row in rows for c in row), default=0.0)
    width = max(right - left, title) + 2 * MARGIN
    shift = (width - left - right) / 2
    for row in rows:
        for cell in row:
            cell.x += shift
    return width


def _set_rows(
    layout: LayeredRows, outlines: Sequence[Outline], links: Sequence[_Link], title: float
) -> tuple[list[tuple[float, float]], float]:
    """Top and bottom of every row, and the total height."""
    widest = [0.0] * len(layout.rows)
    for link in links:
        across = abs(link.upper.x + link.leaves - link.lower.x - link.enters)
        widest[link.row] = max(widest[link.row], across)
    y = 0.0
    bounds: list[tuple[float, float]] = []
    for r, row in enumerate(layout.rows):
        ports = any(e >= 0 and outlines[e].is_port for e in row)
        if title and not bounds and not ports:
            y = _HEADER + 8.0
        bottom = y + max((outlines[e].height for e in row if e >= 0), default=0.0)
        bounds.append((y, bottom))
        y = bottom + _ROW_GAP + min(40.0, 0.07 * widest[r])
        if title and ports and r == 0:
            y = max(y, _HEADER + 12.0)
    if not bounds:
        return bounds, _HEADER + MARGIN
    ends_in_ports = any(e >= 0 and outlines[e].is_port for e in layout.rows[-1])
    return bounds, bounds[-1][1] + (MARGIN if title and not ends_in_ports else 0.0)


def _top(outline: Outline, top: float, bottom: float) -> float:
    """Where an item stands in its row: leaves at the bottom, near their users."""
    room = bottom - top - outline.height
    return top + (room if outline.is_leaf else min(room / 2, 16.0))


def _piece(
    link: _Link, outlines: Sequence[Outline], tops: Sequence[float], bounds: Sequence[tuple[float, float]]
) -> WirePiece:
    start, (end, bottom) = bounds[link.row][1], bounds[link.row + 1]
    top = tops[link.source] + outlines[link.source].height if link.source >= 0 else start
    bottom = tops[link.target] if link.target >= 0 else bottom
    x, across = link.upper.x + link.leaves, link.lower.x + link.enters
    return WirePiece(x, top, start, across, end, bottom, link.row, link.source, link.target)
