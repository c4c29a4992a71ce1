"""What the examination of a loss, operator by operator, found; prints as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...drawing.scene import Scene
from ...errors import GradientError
from ...tables import table
from ..report import LossReport, finite
from .nodes import LayerCheck, NodeCheck
from .page import departures_page
from .text import ADJOINTS, LEGEND, block, layer_table, node_table


@dataclass(frozen=True)
class DepartureReport:
    """Where the gradient of a loss departs from JAX's, operator by operator."""

    title: str
    nodes: tuple[NodeCheck, ...]
    """All operators that a gradient reaches, in the order of recording; those in the body of a loop come
    before the loop."""
    parameters: LossReport
    """The gradient of the loss by each parameter, from the same passes."""
    loss: float
    """The value of the loss in float64; if it has several elements, their sum."""
    scene: Scene = field(repr=False, compare=False)
    """The graph, for pages."""
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each parameter whose gradient is wrong, the keys of the operators from it to one that departs,
    along the largest errors."""

    @cached_property
    def departures(self) -> tuple[NodeCheck, ...]:
        """The operators whose rules depart from JAX or cannot be evaluated, the nearest to the loss first. A
        loop is not among them if an operator in its body is."""
        wrong = [node for node in self.nodes if not node.ok]
        inside = {node.loop for node in wrong}
        return tuple(node for node in reversed(wrong) if node.key not in inside)

    @property
    def first(self) -> NodeCheck | None:
        """The departing operator that is nearest to the loss."""
        return next(iter(self.departures), None)

    @cached_property
    def layers(self) -> tuple[LayerCheck, ...]:
        """The layers in the order of their last operators."""
        found: dict[str, list[NodeCheck]] = {}
        for node in reversed(self.nodes):
            found.setdefault(node.layer, []).insert(0, node)
        return tuple(LayerCheck(name, tuple(nodes)) for name, nodes in reversed(found.items()))

    @property
    def ok(self) -> bool:
        """Whether every rule agrees with JAX, and the gradient by every parameter."""
        return not self.departures and self.parameters.ok

    def raise_if_wrong(self) -> None:
        """``GradientError`` with the report if a rule departs or a gradient is wrong."""
        if not self.ok:
            raise GradientError(f"wrong gradients\n{self}")

    def node(self, key: str) -> NodeCheck:
        """The operator of this key; ``KeyError`` without one."""
        return self._by_key[key]

    @cached_property
    def _by_key(self) -> dict[str, NodeCheck]:
        return {node.key: node for node in self.nodes}

    def way(self, parameter: str) -> tuple[str, ...]:
        """The layers from a parameter whose gradient is wrong to the operator that departs."""
        return tuple(dict.fromkeys(self.node(key).layer for key in self.paths.get(parameter, ())))

    def table(self, rows: int | None = None) -> str:
        """The report as text with all operators and parameters, or the ``rows`` worst of them."""
        lines = [self.title, *self._departures(rows), "", *LEGEND, *layer_table(self.layers)]
        if rows is None:
            lines += ["", "The same for each operator, in the order of recording:", *node_table(self.nodes)]
        return "\n".join([*lines, "", self.parameters.table(rows)])

    def _departures(self, rows: int | None) -> Iterator[str]:
        """The first departing operator as a block, the others as lines; the path of the worst error."""
        if not self.departures:
            yield f"each of {len(self.nodes)} operators agrees with JAX"
            return
        count = len(self.departures)
        yield f"{count} of {len(self.nodes)} operators depart{'s' * (count == 1)} from JAX"
        shown = 1 if rows is not None else count
        for node in self.departures[:shown]:
            yield from block(node)
        others = self.departures[shown:rows]
        if others:
            yield "further from the loss:"
            yield from table([(n.label, n.layer, f"{n.worst:.1e}", n.verdict) for n in others], "<<><")
        if left := count - shown - len(others):
            yield f"  ... and {left} more"
        if worst := next((check for check in self.parameters.checks if check.name in self.paths), None):
            yield f"the gradient by {worst.name} is off by {worst.worst:.1e}, by way of"
            yield f"  {' <- '.join(self.way(worst.name))}"

    def page(self) -> str:
        """The report as one HTML page that needs no network; ``write_page`` writes it to a file.

        Besides what the text says, it has a chart of the errors of all operators, every operator of each
        layer with values and adjoints of both sides, and the graph, coloured by where gradients depart.
        """
        ways = {name: self.way(name) for name in self.paths}
        return departures_page(
            self.title, self.nodes, self.departures, self.layers, ways, self.parameters, self.scene
        )

    def as_json(self) -> dict[str, Any]:
        """The report as data for JSON; a number that is not finite is ``None``."""
        return {
            **self.parameters.as_json(),
            "ok": self.ok,
            "departures": [_node_json(node) for node in self.departures],
            "paths": {name: list(keys) for name, keys in self.paths.items()},
            "layers": [
                {
                    "layer": layer.name,
                    "operators": len(layer.nodes),
                    "value": finite(layer.value),
                    **{name: finite(layer.adjoint(name)) for name in ADJOINTS},
                    "worst": finite(layer.worst),
                    "verdict": layer.verdict,
                }
                for layer in self.layers
            ],
        }

    def __str__(self) -> str:
        return self.table(10)

    __repr__ = __str__  # for prompts and notebooks


def _node_json(node: NodeCheck) -> dict[str, Any]:
    return {
        "operator": node.type,
        "number": node.key,
        "shape": node.shape,
        "layer": node.layer,
        "place": node.place,
        "verdict": node.verdict,
        "problem": node.problem,
        "children": [
            {
                "name": child.name,
                "shape": list(child.shape),
                "step": child.step,
                **{
                    kind: {
                        **{name: finite(number) for name, number in c._asdict().items()},
                        "place": list(child.index(kind)),
                    }
                    for kind, c in child.comparisons.items()
                },
            }
            for child in node.children
        ],
    }
