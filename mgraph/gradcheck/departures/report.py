"""What an examination of a loss operator by operator found; prints as text, see ``page`` for the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...errors import GradientError
from ...tables import table
from ..report import TOLERANCES, LossReport, finite
from .comparison import Comparison, Distance

ROUNDING = 16
"""How many times as far as a few units in the last place move it a gradient may be off."""


@dataclass(frozen=True)
class ChildCheck:
    """What the rule of an operator gives for one child, from the adjoint and the values that JAX computes."""

    name: str
    shape: tuple[int, ...]
    comparisons: Mapping[str, Comparison]
    """In ``float64``, and in ``float32`` if that was asked for."""
    handed_on: Distance | None = None
    """How far what the rules hand on to the child in the whole pass is from what JAX does, in float64."""
    step: int | None = None
    """In the body of a loop, the step in which they differ most, counted through all steps if the loop is
    itself inside of a loop."""

    def allowed(self, kind: str) -> float:
        """The largest difference that counts as agreement."""
        found = self.comparisons[kind]
        return float(TOLERANCES[kind] * found.size + ROUNDING * found.noise)

    @property
    def objections(self) -> tuple[str, ...]:
        """The element types in which rule and JAX disagree."""
        every = self.comparisons.items()
        return tuple(k for k, c in every if not (c.difference <= self.allowed(k) and c.difference < math.inf))

    @property
    def excess(self) -> tuple[float, float]:
        """How large the difference in float64 is beside what is allowed; among equals, the gradient's size."""
        found, allowed = self.comparisons["float64"], self.allowed("float64")
        return found.difference / allowed if allowed else found.difference, found.size

    @property
    def is_finite(self) -> bool:
        """Whether what the gradient is computed from is finite."""
        return all(max(c.value, c.adjoint) < math.inf for c in self.comparisons.values())

    def index(self, kind: str) -> tuple[int, ...]:
        """Where the largest difference is."""
        place = int(self.comparisons[kind].place)
        found: list[int] = []
        for size in reversed(self.shape):
            place, i = divmod(place, max(size, 1))
            found.insert(0, i)
        return tuple(found)

    @property
    def likeness(self) -> str:
        """What the gradient found is, compared with the one expected, if that can be said in few words."""
        found = self.comparisons["float64"]
        if not found.difference < math.inf:
            return "not finite"
        if found.size == 0:
            return "zero was expected"
        if found.rest <= 1e-6 * found.size:
            return f"{found.factor:.6g} times what was expected" if abs(found.factor) > 1e-6 else "zero"
        return ""


@dataclass(frozen=True)
class NodeCheck:
    """One operator of a loss."""

    key: str
    """Its number on the tape; in the body of loop 17 that and the row: ``17.3``."""
    type: str
    shape: str
    place: str
    """The user's line that recorded it, or its loop."""
    layer: str
    """The group of parameters to which it belongs, or the line that recorded it where there is none."""
    children: tuple[ChildCheck, ...] = ()
    """Those that a gradient flows into."""
    value: Distance | None = None
    """The value in float32, from that in float64."""
    adjoints: Mapping[str, Distance] = field(default_factory=dict)
    """How far the adjoints of the whole passes are apart: by rules and by JAX in each type (``float64``,
    ``float32``), and in float32 from JAX's in float64 (by JAX ``rounding``, by rules ``rule_rounding``)."""
    by_design: bool = False
    """Whether its rule is not meant to be the derivative."""
    problem: str = ""
    """Why its rule could not be evaluated."""

    @property
    def loop(self) -> str:
        """The loop in whose body it is, or nothing."""
        return self.key.rpartition(".")[0]

    @property
    def objections(self) -> tuple[str, ...]:
        """The element types in which rule and JAX disagree."""
        found = {kind for child in self.children for kind in child.objections}
        return tuple(kind for kind in ("float64", "float32") if kind in found)

    @property
    def ok(self) -> bool:
        """Whether the rule could be evaluated and agrees with JAX."""
        return not self.problem and not self.objections

    @property
    def verdict(self) -> str:
        """``ok``, ``by design``, ``WRONG`` where float64 says so, ``UNSTABLE`` where only float32 does, ``not
        finite`` where there is nothing to be judged, or the problem."""
        if self.problem:
            return "FAILS"
        if not self.objections:
            return "by design" if self.by_design else "ok"
        if not all(child.is_finite for child in self.children):
            return "not finite"
        return "WRONG" if "float64" in self.objections else "UNSTABLE"

    @property
    def worst(self) -> float:
        """The largest difference of rule and JAX in float64, relative to the largest gradient by the child."""
        found = [c.comparisons["float64"] for c in self.children if "float64" in c.comparisons]
        return max((_relative(c.difference, c.size) for c in found), default=0.0)


@dataclass(frozen=True)
class LayerCheck:
    """The operators of one layer together."""

    name: str
    nodes: tuple[NodeCheck, ...]

    @property
    def verdict(self) -> str:
        """``ok``, or how many operators depart."""
        wrong = [node for node in self.nodes if not node.ok]
        kinds = dict.fromkeys(node.verdict for node in wrong)
        return f"{', '.join(kinds)}: {len(wrong)}" if wrong else "ok"

    @property
    def value(self) -> float:
        """The largest relative error of a value in float32."""
        return max((n.value.relative for n in self.nodes if n.value is not None), default=0.0)

    def adjoint(self, name: str) -> float | None:
        """The largest relative distance between adjoints, by its name in ``NodeCheck.adjoints``."""
        return max((n.adjoints[name].relative for n in self.nodes if name in n.adjoints), default=None)

    @property
    def worst(self) -> float:
        """The largest difference of a rule and JAX in float64, relative to the largest gradient."""
        return max(node.worst for node in self.nodes)


@dataclass(frozen=True)
class DepartureReport:
    """Where the gradient of a loss departs from JAX's, operator by operator."""

    title: str
    nodes: tuple[NodeCheck, ...]
    """All operators that a gradient reaches, in the order of recording; those in the body of a loop come
    before it."""
    parameters: LossReport
    """The gradient of the loss by each parameter, from the same passes."""
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each parameter whose gradient is wrong the keys of operators from it to one that departs, along
    what is off by most."""

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
        return {node.key: node for node in self.nodes}[key]

    def way(self, parameter: str) -> tuple[str, ...]:
        """The layers from a parameter whose gradient is wrong to the operator that departs."""
        return tuple(dict.fromkeys(self.node(key).layer for key in self.paths.get(parameter, ())))

    def table(self, rows: int | None = None) -> str:
        """The report as text with all operators and parameters, or the ``rows`` worst of them."""
        lines = [self.title, *self._verdict(), *self._departures(rows), *self._layers()]
        if rows is None:
            lines += ["", "Operators, in the order of recording", *node_table(self.nodes)]
        return "\n".join([*lines, "", self.parameters.table(rows)])

    def _verdict(self) -> Iterator[str]:
        if not self.departures:
            yield f"all {len(self.nodes)} operators agree with JAX"
            return
        yield (
            f"{len(self.departures)} of {len(self.nodes)} operators depart from JAX, "
            "the nearest to the loss first"
        )

    def _departures(self, rows: int | None) -> Iterator[str]:
        shown = self.departures[:rows]
        for number, node in enumerate(shown, 1):
            yield ""
            yield f"{number}. {node.type} {node.shape}, number {node.key}, in {node.layer}: {node.verdict}"
            yield f"   {node.place}"
            if node.problem:
                yield f"   {node.problem}"
            if node.children:
                yield from (f" {line}" for line in child_table(node.children))
            yield from _likenesses(node)
        if left := len(self.departures) - len(shown):
            yield f"... and {left} more"
        if worst := next((check for check in self.parameters.checks if check.name in self.paths), None):
            yield ""
            yield f"The gradient by {worst.name} is off by {worst.worst:.1e}, by way of"
            yield f"  {' <- '.join(self.way(worst.name))}"

    def _layers(self) -> Iterator[str]:
        yield ""
        yield "Layers: the largest relative errors of their values and adjoints"
        yield from layer_table(self.layers)

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
                    **{name: finite(layer.adjoint(name)) for name in ("float64", "rounding", "rule_rounding")},
                    "worst": finite(layer.worst),
                    "verdict": layer.verdict,
                }
                for layer in self.layers
            ],
        }

    def __str__(self) -> str:
        return self.table(10)


def _likenesses(node: NodeCheck) -> Iterator[str]:
    """One line for each child whose gradient can be described."""
    for child in node.children:
        if "float64" in child.objections and child.likeness:
            yield f"   by {child.name} it is {child.likeness}"


def child_table(children: Sequence[ChildCheck]) -> list[str]:
    """A row for each child: magnitudes, the worst element and both gradients there."""
    head = (
        "gradient by", "shape", "value", "gradient", "rule - jax", "allowed", "at", "jax has", "the rule has"
    )  # fmt: skip
    rows = [head]
    for child in children:
        for kind, c in child.comparisons.items():
            if kind != "float64" and kind not in child.objections:
                continue
            place = str(list(child.index(kind))) + (f" in step {child.step}" if child.step is not None else "")
            name = child.name if kind == "float64" else f"{child.name} in {kind}"
            numbers = (f"{n:.1e}" for n in (c.value, c.size, c.difference, child.allowed(kind)))
            rows.append((name, shape_of(child), *numbers, place, f"{c.expected:.6g}", f"{c.found:.6g}"))
    return table(rows, "<<>>>><>>")


def shape_of(child: ChildCheck) -> str:
    """Sizes of the axes."""
    return "x".join(map(str, child.shape)) or "scalar"


def layer_table(layers: Sequence[LayerCheck]) -> list[str]:
    """A row for each layer."""
    columns = ("rounding", "rule_rounding", "float64")
    head = ("layer", "operators", "float32", "jax, float32", "rules, float32", "rules - jax", "one rule", "")
    rows = [head]
    for layer in layers:
        numbers = [_text(layer.value), *(_text(layer.adjoint(name)) for name in columns), _text(layer.worst)]
        rows.append((layer.name, str(len(layer.nodes)), *numbers, layer.verdict))
    return table(rows, "<>>>>>><")


def node_table(nodes: Sequence[NodeCheck]) -> list[str]:
    """A row for each operator, with the columns of ``layer_table``."""
    columns = ("rounding", "rule_rounding", "float64")
    rows = [("operator", "float32", "jax, float32", "rules, float32", "rules - jax", "one rule", "")]
    for node in nodes:
        value = node.value.relative if node.value is not None else None
        adjoints = [node.adjoints[name].relative if name in node.adjoints else None for name in columns]
        numbers = map(_text, (value, *adjoints, node.worst))
        rows.append((f"{node.key} {node.type} {node.shape}, {node.layer}", *numbers, node.verdict))
    return table(rows, "<>>>>><")


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.1e}"


def _relative(difference: float, size: float) -> float:
    if difference == 0:
        return 0.0
    return float(difference / size) if 0 < size < math.inf else math.inf


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
                        **{name: finite(float(number)) for name, number in c._asdict().items()},
                        "place": list(child.index(kind)),
                        "allowed": finite(child.allowed(kind)),
                    }
                    for kind, c in child.comparisons.items()
                },
            }
            for child in node.children
        ],
    }
