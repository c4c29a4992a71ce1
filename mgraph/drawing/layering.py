"""Rows and their order: the part of a layered drawing that does not depend on the sizes of items.

Sources: Sugiyama, Tagawa and Toda 1981 (layers, then orders by barycentres); Barth, Juenger and Mutzel 2002
(counting crossings).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_SWEEPS = 12


@dataclass
class Net:
    """A value's wires, from the item that has the value to each item that uses it, one for every use."""

    source: int
    targets: list[int]


@dataclass
class LayeredRows:
    """Items in rows from top to bottom, each row from left to right.

    An entry ``i >= 0`` is item ``i``; an entry ``-1 - n`` is a bend, where net ``n`` passes through the row
    on its way to rows below. Uses that do not lead downwards, as pairs of net and target, are in ``upward``;
    only a cycle of items has such uses.
    """

    rows: list[list[int]]
    upward: list[tuple[int, int]]


def arrange(
    count: int,
    nets: Sequence[Net],
    first: Sequence[int] = (),
    last: Sequence[int] = (),
    entrances: Mapping[int, Sequence[int]] | None = None,
    keep_first: bool = False,
) -> LayeredRows:
    """Rows for the items ``0 ... count - 1``, with few crossings.

    ``first`` and ``last`` have the outer rows to themselves; with ``keep_first`` the first keep their order.
    ``entrances`` gives, for some items, the preferred order of their nets from left to right.

    Every item is below the items that it uses; an item that uses nothing is right above its first user.
    """
    upward = _upward(count, nets)
    down = [[t for t in net.targets if (n, t) not in upward] for n, net in enumerate(nets)]
    rank = _ranks(count, [net.source for net in nets], down, first, last)
    rows = _first_order(count, nets, rank, entrances or {})
    if keep_first:
        rows[0] = list(first)
    segments = _add_bends(rows, nets, down, rank)
    _reduce_crossings(rows, segments, keep_first)
    return LayeredRows(rows, [(n, t) for n, net in enumerate(nets) for t in net.targets if (n, t) in upward])


def _upward(count: int, nets: Sequence[Net]) -> set[tuple[int, int]]:
    """Uses that close a cycle, by depth-first search from the first item on."""
    uses: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for n, net in enumerate(nets):
        uses[net.source] += [(n, t) for t in dict.fromkeys(net.targets)]
    closing: set[tuple[int, int]] = set()
    state = [0] * count  # 1 while a search is below the item, 2 afterwards
    for root in range(count):
        stack = [(root, iter(uses[root]))] if not state[root] else []
        state[root] = state[root] or 1
        while stack:
            item, rest = stack[-1]
            for use in rest:
                if state[use[1]] == 1:
                    closing.add(use)
                elif not state[use[1]]:
                    state[use[1]] = 1
                    stack.append((use[1], iter(uses[use[1]])))
                    break
            else:
                state[item] = 2
                stack.pop()
    return closing


def _ranks(
    count: int, sources: list[int], down: list[list[int]], first: Sequence[int], last: Sequence[int]
) -> list[int]:
    """The row of every item, by longest paths from the top; then items move down to shorten their wires."""
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for source, targets in zip(sources, down, strict=True):
        for target in dict.fromkeys(targets):
            before[target].append(source)
            after[source].append(target)
    order = _topological(before, after)
    rank = [0] * count
    at_top, at_bottom = {*first}, {*last}
    for item in order:
        top = 0 if item in at_top or not first else 1
        rank[item] = max((rank[b] + 1 for b in before[item]), default=top)
    fixed = at_top | at_bottom
    for item in reversed(order):
        if not after[item] or item in fixed:
            continue
        lowest = min(rank[a] for a in after[item]) - 1
        lengthened = 0
        for b in before[item]:
            lengthened += bool(before[b]) and all(lowest > rank[a] for a in after[b] if a != item)
        if lengthened <= 1:
            rank[item] = lowest
    bottom = max((rank[i] for i in range(count) if i not in at_bottom), default=-1) + 1
    for item in last:
        rank[item] = bottom
    used = {r: i for i, r in enumerate(sorted({*rank, *([0] if first else [])}))}
    return [used[r] for r in rank]


def _topological(before: list[list[int]], after: list[list[int]]) -> list[int]:
    missing = [len(b) for b in before]
    order = [item for item, n in enumerate(missing) if not n]
    for item in order:
        for a in after[item]:
            missing[a] -= 1
            if not missing[a]:
                order.append(a)
    return order


def _first_order(
    count: int, nets: Sequence[Net], rank: list[int], entrances: Mapping[int, Sequence[int]]
) -> list[list[int]]:
    """Rows in the order in which a search from the bottom up meets the items, operands from left to right."""
    operands: list[list[int]] = [[] for _ in range(count)]
    for net in nets:
        for target in dict.fromkeys(net.targets):
            operands[target].append(net.source)
    for item, order in entrances.items():
        operands[item] = list(dict.fromkeys(nets[n].source for n in order))
    rows: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    seen: set[int] = set()
    for root in sorted(range(count), key=lambda item: (-rank[item], item)):
        stack = [root]
        while stack:
            item = stack.pop()
            if item not in seen:
                seen.add(item)
                rows[rank[item]].append(item)
                stack += reversed(operands[item])
    return rows


Segments = list[list[tuple[int, int]]]
"""For each row, the pieces of wire from its entries to entries of the next row."""


def by_row(items: Iterable[int], rank: Mapping[int, int] | Sequence[int]) -> dict[int, list[int]]:
    """The items of each row, in the given order; ``rank`` is the row of each item."""
    found: dict[int, list[int]] = {}
    for item in items:
        found.setdefault(rank[item], []).append(item)
    return found


def _add_bends(
    rows: list[list[int]], nets: Sequence[Net], down: list[list[int]], rank: list[int]
) -> Segments:
    """Lead every net as one trunk through the rows that it crosses, with a branch to each use."""
    segments: Segments = [[] for _ in rows]
    for n, net in enumerate(nets):
        if not down[n]:
            continue
        entry, lowest = net.source, max(rank[t] for t in down[n])
        reached = by_row(dict.fromkeys(down[n]), rank)
        for r in range(rank[net.source], lowest):
            segments[r] += [(entry, t) for t in reached.get(r + 1, ())]
            if r + 1 < lowest:
                segments[r].append((entry, -1 - n))
                rows[r + 1].append(-1 - n)
                entry = -1 - n
    return segments


def _reduce_crossings(rows: list[list[int]], segments: Segments, keep_first: bool) -> None:
    """Sort each row by the mean places of its neighbours above, then below, and keep the best order found."""
    best, fewest = [row[:] for row in rows], _crossings(rows, segments)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        if sweep % 2 == 0:
            for r in range(1, len(rows)):
                _sort(rows[r], rows[r - 1], [(b, a) for a, b in segments[r - 1]])
        else:
            for r in range(len(rows) - 2, keep_first - 1, -1):
                _sort(rows[r], rows[r + 1], segments[r])
        found = _crossings(rows, segments)
        if found < fewest:
            best, fewest = [row[:] for row in rows], found
    rows[:] = best


def _sort(row: list[int], fixed: list[int], pairs: Sequence[tuple[int, int]]) -> None:
    """Sort ``row`` by barycentres among ``fixed``; entries without a neighbour stay where they are."""
    place = {entry: i for i, entry in enumerate(fixed)}
    met: dict[int, list[int]] = {}
    for entry, neighbour in pairs:
        met.setdefault(entry, []).append(place[neighbour])
    movable = [entry for entry in row if entry in met]
    ordered = iter(sorted(movable, key=lambda entry: sum(met[entry]) / len(met[entry])))
    row[:] = [next(ordered) if entry in met else entry for entry in row]


def _crossings(rows: list[list[int]], segments: Segments) -> int:
    total = 0
    for r in range(len(rows) - 1):
        upper = {entry: i for i, entry in enumerate(rows[r])}
        lower = {entry: i for i, entry in enumerate(rows[r + 1])}
        ends: list[int] = []
        for _, end in sorted((upper[a], lower[b]) for a, b in segments[r]):
            total += len(ends) - bisect_right(ends, end)
            insort(ends, end, bisect_left(ends, end))
    return total
