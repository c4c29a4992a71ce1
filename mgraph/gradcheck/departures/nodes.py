"""What was found at one operator of a loss, at its children, and in a layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..report import TOLERANCES
from .comparison import Comparison, Distance


@dataclass(frozen=True)
class ChildCheck:
    """What the rule of an operator gives for one child, from the adjoint and the values that JAX computes."""

    name: str
    shape: tuple[int, ...]
    comparisons: Mapping[str, Comparison]
    """In ``float64``, and in ``float32`` if that was asked for."""
    handed_on: Distance | None = None
    """How far the gradient that the whole pass by rules hands on to the child is from JAX's, in float64."""
    step: int | None = None
    """In the body of a loop, the step in which rule and JAX differ most; for a loop inside another, counted
    through all steps of both."""

    @property
    def objections(self) -> tuple[str, ...]:
        """The element types in which rule and JAX disagree."""
        return tuple(kind for kind, found in self.comparisons.items() if not found.agrees)

    @property
    def excess(self) -> float:
        """The difference in float64, divided by the largest that counts as agreement."""
        found = self.comparisons.get("float64")
        if found is None or found.difference == 0:
            return 0.0
        return found.difference / found.allowed if 0 < found.allowed < math.inf else math.inf

    @property
    def is_finite(self) -> bool:
        """Whether the numbers that the gradient is computed from are finite."""
        return all(max(c.value, c.adjoint) < math.inf for c in self.comparisons.values())

    def index(self, kind: str) -> tuple[int, ...]:
        """Where the largest difference is."""
        place = self.comparisons[kind].place
        found: list[int] = []
        for size in reversed(self.shape):
            place, i = divmod(place, max(size, 1))
            found.insert(0, i)
        return tuple(found)

    @property
    def likeness(self) -> str:
        """How the gradient found relates to the one expected, if that can be said in few words."""
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
    """Its number on the tape; in the body of loop 17, the loop's number and the row: ``17.3``."""
    type: str
    shape: str
    place: str
    """The user's line that recorded it, or its loop."""
    layer: str
    """The group of parameters to which it belongs, or the line that recorded it where there is none."""
    children: tuple[ChildCheck, ...] = ()
    """The children that a gradient flows into."""
    value: Distance | None = None
    """How far the value in float32 is from that in float64; ``None`` if only float64 was asked for."""
    adjoints: Mapping[str, Distance] = field(default_factory=dict)
    """How far the adjoints of the whole passes are apart: those by rules from those by JAX in each type
    (``float64``, ``float32``), and those in float32 from JAX's in float64 (``rounding`` for JAX's,
    ``rule_rounding`` for the rules')."""
    by_design: bool = False
    """Whether its rule is not meant to be the derivative."""
    problem: str = ""
    """Why its rule could not be evaluated."""

    @property
    def label(self) -> str:
        """Type, number and shape."""
        return f"{self.type} ({self.key}) {self.shape}"

    @property
    def loop(self) -> str:
        """The key of the loop in whose body the operator is; empty outside of loops."""
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
        """``ok``, ``by design``, ``WRONG`` where float64 says so, ``UNSTABLE`` where only float32 does,
        ``not finite`` where there is nothing to judge, or ``FAILS`` where there is a problem."""
        if self.problem:
            return "FAILS"
        if not self.objections:
            return "by design" if self.by_design else "ok"
        if not all(child.is_finite for child in self.children):
            return "not finite"
        return "WRONG" if "float64" in self.objections else "UNSTABLE"

    @property
    def worst(self) -> float:
        """The largest difference between rule and JAX in float64, relative to the gradient by the same child
        or, where that is more, to what rounding can do to it; wrong above 1e-10."""
        return max((TOLERANCES["float64"] * child.excess for child in self.children), default=0.0)


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
    def value(self) -> float | None:
        """The largest relative error of a value in float32."""
        return max((n.value.relative for n in self.nodes if n.value is not None), default=None)

    def adjoint(self, name: str) -> float | None:
        """The largest relative distance between adjoints, by its name in ``NodeCheck.adjoints``."""
        return max((n.adjoints[name].relative for n in self.nodes if name in n.adjoints), default=None)

    @property
    def worst(self) -> float:
        """The largest difference between a rule and JAX in float64, relative as in ``NodeCheck.worst``."""
        return max(node.worst for node in self.nodes)
