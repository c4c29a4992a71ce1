"""From rows and numbers to a report: names of operators, their layers and places, and the paths of errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from ...drawing.faces import shape_text
from ...drawing.groups import group_paths
from ...drawing.nodes import Drawn
from ...drawing.scene import make_scene
from ...leaves import ParamNode
from ...node import Node
from ...places import place
from ...structure import Excerpt, is_leaf
from ..loss import parameter_check, worst_first
from ..report import LossReport, ParameterCheck
from .nodes import ChildCheck, NodeCheck
from .report import DepartureReport
from .sweep import Findings


class Namer:
    """The names of the nodes below a loss; ``rounding`` is that of its ``Widening``."""

    def __init__(self, loss: Node, excerpt: Excerpt, rounding: float) -> None:
        tape = loss.tape()
        self._rounding = rounding
        self._nodes: dict[int, Node] = {excerpt.row_of[i]: tape.nodes[i] for i in excerpt.row_of}
        self._rows = excerpt.structure.rows
        self._users: dict[int, list[tuple[int, int]]] = {}
        """For each row, the rows that use it, and as which child."""
        for i, row in enumerate(self._rows):
            for n, k in enumerate(() if is_leaf(row) else row[1:]):
                self._users.setdefault(k, []).append((i, n))
        self._scene = make_scene(tape)
        self._drawn = self._scene.nodes
        self._groups = group_paths(self._drawn)

    def report(self, found: Mapping[int, Findings], loss: float) -> DepartureReport:
        """The report of what was found at the rows."""
        nodes: dict[str, NodeCheck] = {}
        for i, row in enumerate(self._rows):
            if found[i].adjoints and not is_leaf(row):
                outer = self._node(i, found[i])
                nodes |= {inner.key: inner for inner in self._body(outer, found[i])}
                nodes[outer.key] = outer
        parameters = self._parameters(found)
        paths = {
            node.name: self._path(i, found)
            for i, node in self._nodes.items()
            if any(check.name == node.name and "float64" in check.objections for check in parameters)
        }
        title = f"{len(nodes)} operators, {len(parameters)} parameters, loss {loss:.6g}"
        by_parameter = LossReport("Gradients by parameters", parameters)
        return DepartureReport(title, tuple(nodes.values()), by_parameter, loss, self._scene, paths)

    # -- operators

    def _node(self, i: int, found: Findings) -> NodeCheck:
        node, (operator, *rows) = self._nodes[i], self._rows[i]
        return NodeCheck(
            str(node.id),
            node.type,
            shape_text(node.spec),
            f"recorded at {place(node.where)}",
            self._layer(node),
            tuple(self._children(rows, found)),
            found.value,
            found.adjoints,
            by_design=not operator.gradient_is_derivative,
            problem=found.problem,
        )

    def _children(self, rows: list[int], found: Findings) -> Iterator[ChildCheck]:
        for n, k in enumerate(rows):
            kinds = {kind: c for kind, all in found.children.items() if (c := all[n]) is not None}
            if kinds:
                child = self._drawn[str(self._nodes[k].id)]
                handed_on = found.handed_on[n] if found.handed_on else None
                yield ChildCheck(_name(child), _sizes(child), kinds, handed_on)

    def _body(self, loop: NodeCheck, found: Findings) -> Iterator[NodeCheck]:
        """The operators in the body of a loop, each child in its worst step."""
        for row, steps in found.inner.items():
            drawn = self._drawn[f"{loop.key}.{row}"]
            children = []
            for key, *each in zip(drawn.children, *steps, strict=True):
                child = self._drawn[key]
                checks = [
                    ChildCheck(_name(child), _sizes(child), {"float64": comparison}, step=step)
                    for step, comparison in enumerate(each)
                    if comparison is not None
                ]
                children += [max(checks, key=_judged)] if checks else []
            where = f"in the body of the loop {loop.place}"
            yield NodeCheck(drawn.key, drawn.type, shape_text(drawn.spec), where, loop.layer, tuple(children))

    def _layer(self, node: Node) -> str:
        path = self._groups[str(node.id)]
        return path[-1] if path else PurePath(place(node.where)).name

    # -- parameters

    def _parameters(self, found: Mapping[int, Findings]) -> tuple[ParameterCheck, ...]:
        """The check of each parameter from the adjoints of the whole passes."""
        leaves = {i: found[i].adjoints for i, n in self._nodes.items() if isinstance(n, ParamNode)}
        sizes = [a["float64"].size for a in leaves.values() if a]
        whole = max(filter(math.isfinite, sizes), default=0.0)
        checks = []
        for i, adjoints in leaves.items():
            if adjoints:
                absolute: dict[str, float] = {
                    name: adjoints[name].largest
                    for name in ("float64", "float32", "rounding")
                    if name in adjoints
                }
                node, size = self._nodes[i], adjoints["float64"].size
                checks.append(parameter_check(node.name, node.shape, size, whole, absolute, self._rounding))
        return worst_first(checks)

    def _path(self, leaf: int, found: Mapping[int, Findings]) -> tuple[str, ...]:
        """The operators from a parameter to one whose gradient by the operator before it departs, along the
        largest errors."""
        path: list[str] = []
        at = leaf
        while True:
            users = (
                (off.largest, user, n)
                for user, n in self._users.get(at, ())
                if found[user].handed_on and (off := found[user].handed_on[n]) is not None
            )
            most, at, n = max(users, default=(0.0, leaf, 0))
            if not most:
                return tuple(path)
            path.append(str(self._nodes[at].id))
            comparison = found[at].children["float64"][n]
            if comparison is not None and not comparison.agrees:
                return tuple(path)


def _judged(check: ChildCheck) -> tuple[float, float]:
    """The key of a loop's worst step: the excess, then the largest magnitude of the gradient."""
    return check.excess, check.comparisons["float64"].size


def _name(drawn: Drawn) -> str:
    """The name of a child, with its type unless it is a parameter or a leaf of a loop."""
    if drawn.name:
        return drawn.name if drawn.is_leaf or drawn.loop else f'{drawn.type} "{drawn.name}"'
    return f"{drawn.type} ({drawn.key})"


def _sizes(drawn: Drawn) -> tuple[int, ...]:
    """The shape; for several outputs, the number of all floating point elements."""
    if isinstance(drawn.spec, tuple):
        return (sum(math.prod(part.shape) for part in drawn.spec if part.type.is_float),)
    return drawn.spec.shape
