"""Groups of nodes by the names of parameters: encoder, its layer l1, that layer's self-attention.

The prefixes of a parameter's name say which groups it belongs to. An operation on a parameter belongs to the
parameter's group; the rules of ``group_paths`` place every other node between its neighbours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from .nodes import Drawn

Path = tuple[str, ...]
"""A group, as the prefixes that lead to it: ``("encoder", "encoder_l1", "encoder_l1_self")``."""

SEPARATOR = re.compile(r"::|[_/.]")
_FEWEST_OPERATIONS = 2


def group_paths(nodes: Mapping[str, Drawn]) -> dict[str, Path]:
    """The group of every node that is not in a loop's body; ``()`` is outside all groups.

    In ``nodes``, children come before the nodes that use them. An operation that no parameter places belongs
    to the innermost group that holds all its operands, or holds something before it and something after it,
    or whose result the operation adds to what the group reads. If it lies on a path between two nodes of a
    group, it belongs to that group in any case. Operations that depend on no placed parameter, and leaves,
    belong to the group that their users share. An operation that no placed node uses, such as a loss, is
    outside, unless it is computed from one value of the same shape, like an activation. Groups of a single
    operation are dropped.
    """
    outer = {key: node for key, node in nodes.items() if not node.loop}
    operations = [key for key, node in outer.items() if not node.is_leaf]
    uses: dict[str, list[str]] = {key: [] for key in outer}
    for key, node in outer.items():
        for child in node.children:
            uses[child].append(key)
    paths = _placed(outer, _prefix_paths(n.name for n in outer.values() if _names_a_place(n)))
    fixed = set(paths)
    _place_between(outer, operations, uses, paths)
    paths = _without_trifles(paths, _most_uses(outer, uses, paths))
    _pull_in(outer, operations, uses, paths, fixed)
    _split_visits(outer, operations, paths)
    paths = _without_trifles(paths, {})
    for key in reversed(outer):
        if outer[key].is_leaf:
            used = [paths[user] for user in uses[key]]
            paths[key] = common(used) if used else ()
    return paths


def common(paths: Sequence[Path]) -> Path:
    """The innermost group that holds all these groups."""
    shared = paths[0]
    for path in paths[1:]:
        while path[: len(shared)] != shared:
            shared = shared[:-1]
    return shared


def _names_a_place(node: Drawn) -> bool:
    """Whether a node's name says where it belongs. Names of constants and inputs say what they are, not where
    they are used."""
    return bool(node.name) and (node.type == "param" or not node.is_leaf)


def _prefix_paths(names: Iterable[str]) -> dict[str, Path]:
    """The path of each name through the prefixes that it shares with other names.

    Of several prefixes that the same names share, only the longest is kept.
    """
    prefixes = {name: [name[: m.start()] for m in SEPARATOR.finditer(name)] for name in names}
    count = Counter(prefix for found in prefixes.values() for prefix in found)
    paths = {}
    for name, found in prefixes.items():
        chain = [p for p in found if p and count[p] > 1]
        longest = [p for p, after in zip(chain, [*chain[1:], ""], strict=False) if count[p] != count[after]]
        paths[name] = tuple(longest)
    return paths


def _placed(nodes: Mapping[str, Drawn], by_name: Mapping[str, Path]) -> dict[str, Path]:
    """The groups of operations that have a name or a parameter with a prefix.

    An operation on parameters alone, such as a transposition, is treated as a parameter. The outputs of a
    node that has several are in the node's group.
    """
    paths: dict[str, Path] = {}
    parameters: dict[str, Path] = {}
    for key, node in nodes.items():
        own = by_name.get(node.name, ())
        if node.type == "param":
            parameters[key] = own
        elif not node.is_leaf:
            found = [path for c in node.children if (path := parameters.get(c, ()))]
            found = found or [
                paths[c] for c in node.children if c in paths and isinstance(nodes[c].spec, tuple)
            ]
            if own or found:
                paths[key] = own or common(found)
            if all(c in parameters for c in node.children):
                parameters[key] = paths.get(key, ())
    return paths


def _place_between(
    nodes: Mapping[str, Drawn],
    operations: Sequence[str],
    uses: Mapping[str, Sequence[str]],
    paths: dict[str, Path],
) -> None:
    """Place the other operations by the nearest placed operations before and after them."""
    none: frozenset[Path] = frozenset()
    before: dict[str, frozenset[Path]] = {}
    after: dict[str, frozenset[Path]] = {}
    fixed = dict(paths)
    for key in operations:
        found = [before.get(child, none) for child in nodes[key].children]
        before[key] = frozenset([fixed[key]]) if key in fixed else none.union(*found)
    for key in reversed(operations):
        found = [frozenset([fixed[u]]) if u in fixed else after[u] for u in uses[key]]
        after[key] = none.union(*found)
    rooted: set[str] = set()
    for key in operations:
        children = nodes[key].children
        if any(nodes[c].type == "param" or c in rooted for c in children):
            rooted.add(key)
        if key in fixed:
            continue
        around = _led_around(key, nodes, uses, paths)
        if not after[key]:
            alone = len(children) == 1 and nodes[children[0]].spec == nodes[key].spec
            paths[key] = paths.get(children[0], ()) if alone else around
        elif before[key]:
            earlier = {path[:i] for path in before[key] for i in range(len(path) + 1)}
            met = (path[:i] for path in after[key] for i in range(len(path) + 1) if path[:i] in earlier)
            operands = [paths[c] for c in children if c in paths]
            paths[key] = max([*met, common(operands), around], key=len)
        else:
            # A use of a parameter outside all groups, such as an embedding, belongs to more than its first
            # user.
            paths[key] = common(sorted(after[key]))[: 1 if key in rooted else None]


def _led_around(
    key: str, nodes: Mapping[str, Drawn], uses: Mapping[str, Sequence[str]], paths: Mapping[str, Path]
) -> Path:
    """The group whose result the node adds to what the group reads, as residual connections do; or ``()``."""
    operands = [c for c in nodes[key].children if c in paths]
    shared = common([paths[c] for c in operands]) if operands else ()

    def belongs(child: str, group: Path) -> bool:
        return any(paths.get(k, ())[: len(group)] == group for k in (child, *uses[child]) if k != key)

    ends = sorted({paths[c] for c in operands} - {shared}, key=len, reverse=True)
    return next((group for group in ends if all(belongs(c, group) for c in operands)), ())


def _pull_in(
    nodes: Mapping[str, Drawn],
    operations: Sequence[str],
    uses: Mapping[str, Sequence[str]],
    paths: dict[str, Path],
    fixed: Collection[str],
) -> None:
    """Move operations that lie between two nodes of a group into the group, unless they are ``fixed``."""
    place = {key: i for i, key in enumerate(operations)}
    members: dict[Path, list[int]] = {}
    for key, i in place.items():
        for n in range(1, len(paths[key]) + 1):
            members.setdefault(paths[key][:n], []).append(i)
    for group in sorted(members, key=len, reverse=True):
        span = operations[members[group][0] : members[group][-1] + 1]
        inside = {key for key in span if paths[key][: len(group)] == group}
        below, above = set(inside), set(inside)
        for key in span:
            if any(child in below for child in nodes[key].children):
                below.add(key)
        for key in reversed(span):
            if any(user in above for user in uses[key]):
                above.add(key)
        for key in span:
            around = paths[key] == group[: len(paths[key])] != group
            if around and key in below and key in above and key not in fixed:
                paths[key] = group


def _without_trifles(paths: Mapping[str, Path], visits: Mapping[Path, int]) -> dict[str, Path]:
    """Paths without groups that have too few operations per visit or hold only one inner group."""
    size = Counter(path[: n + 1] for path in paths.values() for n in range(len(path)))
    kept = {group for group, count in size.items() if count >= _FEWEST_OPERATIONS * visits.get(group, 1)}
    inner = {group: [g for g in kept if g[:-1] == group] for group in kept}
    kept -= {g for g, parts in inner.items() if len(parts) == 1 and size[parts[0]] == size[g]}
    return {
        key: tuple(step for i, step in enumerate(path) if path[: i + 1] in kept)
        for key, path in paths.items()
    }


def _most_uses(
    nodes: Mapping[str, Drawn], uses: Mapping[str, Sequence[str]], paths: Mapping[str, Path]
) -> dict[Path, int]:
    """How often the graph visits each group: the most uses that any parameter has in the group."""
    most: dict[Path, int] = {}
    for key, node in nodes.items():
        if node.type == "param":
            users = Counter(paths[user][: n + 1] for user in uses[key] for n in range(len(paths[user])))
            for group, count in users.items():
                most[group] = max(most.get(group, 0), count)
    return most


def _split_visits(nodes: Mapping[str, Drawn], operations: Sequence[str], paths: dict[str, Path]) -> None:
    """Split a group that the graph leaves and enters again into one group per visit, so that tied layers are
    drawn once for each use.
    """
    for depth in range(1 + max(map(len, paths.values()), default=0)):
        spans: dict[Path, tuple[int, int]] = {}  # from the first operation of a group to its last
        for i, key in enumerate(operations):
            if len(paths[key]) > depth:
                group = paths[key][: depth + 1]
                spans[group] = spans.get(group, (i,))[0], i
        for group, (first, last) in sorted(spans.items()):
            visits: dict[str, int] = {}
            for key in operations[first : last + 1]:
                inside = paths[key][: depth + 1] == group
                before = [child for child in nodes[key].children if child in visits]
                seen = [(visits[child], paths[child][: depth + 1] == group) for child in before]
                count = max((v + (inside and not was and v > 0) for v, was in seen), default=0)
                visits[key] = max(count, int(inside))
            for key, visit in visits.items():
                if visit > 1 and paths[key][: depth + 1] == group:
                    again = f"{group[-1]} ({visit})"
                    paths[key] = (*group[:-1], again, *paths[key][depth + 1 :])
