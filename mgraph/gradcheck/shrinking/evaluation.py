"""The evaluation of an example: its gradients by rules, by JAX and by differences, from a cached program.

Compiling takes a hundred times as long as running. So the program of an example takes the children's values
and the adjoint as arguments, and serves all examples that differ only in these. Uncompiled, one evaluation of
a new shape takes longer still: JAX then compiles each primitive by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...arrays import checked_seed, numbers
from ...cases import Case
from ...errors import ArgumentError
from ...graph import ExpressionGraph
from ...node import Node
from ...rules import check_rule_set
from ...shape import Shape
from ...specs import is_real
from ..example import Adjoint, Example, record_case
from ..witnesses.agreement import scales
from ..witnesses.contraction import Point, adjoint_draws
from ..witnesses.five_point import STEP
from ..witnesses.lines import ELEMENTWISE
from ..witnesses.problem import Problem
from ..witnesses.recorded import RecordedFunction, wide

_DIRECTIONS = 12
"""Random directions along which inputs of more than ``ELEMENTWISE`` elements are moved."""
_FASTEST = {"xla_backend_optimization_level": "0"}
"""Programs run for less than a millisecond: only their compile time matters."""


@dataclass(frozen=True)
class Gradients:
    """The gradients of an example's outputs, contracted with its adjoint, with respect to one child."""

    by_rule: np.ndarray
    by_jax: np.ndarray
    directions: np.ndarray
    """The directions, one per row, along which the child was moved."""
    differences: np.ndarray
    """The five-point difference along each direction."""
    bends: np.ndarray
    """How much the slope changes at the point: a lot at a kink, else on the order of the step."""
    scale: float
    """What differences are relative to: the largest element by JAX, but no less than what rounding in the
    gradients of other children, or in the terms of the output, can blur."""

    @property
    def by_differences(self) -> np.ndarray | None:
        """The gradient by differences, if each element was moved on its own."""
        whole = len(self.directions) == self.by_jax.size
        return self.differences.reshape(self.by_jax.shape) if whole else None

    def expected(self, witnesses: Container[str]) -> np.ndarray:
        """The gradient by JAX, or by differences if only these object to the rule."""
        found = None if "jax" in witnesses else self.by_differences
        return self.by_jax if found is None else found


class RecordedExample:
    """A recorded example: a function of the children that can have a gradient."""

    def __init__(self, example: Example) -> None:
        graph = ExpressionGraph(seed=example.seed + 1)
        node, children = record_case(graph, example.operator, example.case, example.values)
        tape = node.tape()
        excerpt = tape.below([node.id])
        nodes = [tape.nodes[i] for i in excerpt.inputs]
        self.children = [
            i for i, child in enumerate(children) if child in nodes and child.value_type.is_float
        ]
        """The indices of the children that have a gradient."""
        chosen = [nodes.index(children[i]) for i in self.children]
        leaves = [wide(n.leaf_value()) for n in nodes]
        row = excerpt.row_of[node.id]
        self.values = RecordedFunction(excerpt, row, chosen, leaves, graph.seed)

    def point(self, example: Example) -> Point:
        """The children's values in an example that differs from the recorded one only in these."""
        return [jnp.asarray(wide(example.values[i])) for i in self.children]

    def outputs(self, point: Point, rule_set: str) -> list[jax.Array]:
        """The outputs of a floating point type."""
        return [v for v in jax.tree.leaves(self.values(point, rule_set, None)) if is_real(v)]

    def problem(self, example: Example) -> Problem:
        """The example as a problem for the witnesses of ``check_gradients``."""
        return Problem(self.values, self.point(example), example.seed)


class FirstDerivatives(RecordedExample):
    """The first derivatives of an example, and of all examples that differ from it only in numbers."""

    def __init__(self, example: Example) -> None:
        super().__init__(example)
        self._rule_set = example.rule_set
        self._random = np.random.default_rng((example.seed, 2))
        self._point = self.point(example)
        self._directions = [self._directions_of(p.size) for p in self._point]
        outputs = jax.eval_shape(lambda p: self.outputs(p, "jax"), self._point)
        self.output_shapes: list[Shape] = [out.shape for out in outputs]
        """The shapes of the outputs that are contracted with an adjoint."""

    def adjoint(self, example: Example) -> Adjoint:
        """The adjoint of an example: its own, or the one that ``check_gradients`` draws for its seed."""
        if example.adjoint is not None:
            return example.adjoint
        random = adjoint_draws(example.seed)
        return tuple(random.standard_normal(shape) + 0.5 for shape in self.output_shapes)

    def __call__(self, example: Example) -> dict[int, Gradients]:
        """The gradients of each child that can have one, by the child's index; empty if the value is not
        finite."""
        point, adjoint = self.point(example), [jnp.asarray(a) for a in self.adjoint(example)]
        by_rule, by_jax, slopes, magnitude = self._compiled(point, adjoint)
        if not np.isfinite(magnitude):
            return {}
        found = zip(by_rule, by_jax, slopes, scales(by_jax, magnitude), strict=True)
        return {
            child: Gradients(
                by_rule=np.asarray(rule),
                by_jax=np.asarray(jaxs),
                directions=directions,
                differences=np.asarray(differences),
                bends=np.asarray(bends),
                scale=scale or 1.0,
            )
            for child, directions, (rule, jaxs, (differences, bends), scale) in zip(
                self.children, self._directions, found, strict=True
            )
        }

    def has_jax(self, example: Example) -> bool:
        """Whether JAX can differentiate the forward by itself."""
        return not self.problem(example).without_jax(self._rule_set)

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        def loss(point: Point, adjoint: Sequence[jax.Array], rule_set: str) -> jax.Array:
            return _contracted(self.outputs(point, rule_set), adjoint)

        def gradients(point: Point, adjoint: Sequence[jax.Array]) -> tuple[Any, ...]:
            by_rule = jax.grad(loss)(point, adjoint, self._rule_set)
            by_jax = jax.grad(loss)(point, adjoint, "jax")
            slopes = [
                _slopes(lambda p: loss(p, adjoint, "jax"), point, i, jnp.asarray(directions))
                for i, directions in enumerate(self._directions)
            ]
            outputs = self.outputs(point, "jax")
            magnitude = _contracted([jnp.abs(v) for v in outputs], [jnp.abs(a) for a in adjoint])
            return by_rule, by_jax, slopes, magnitude

        adjoint = [jnp.zeros(shape) for shape in self.output_shapes]
        return jax.jit(gradients).lower(self._point, adjoint).compile(compiler_options=_FASTEST)

    def _directions_of(self, size: int) -> np.ndarray:
        if size <= ELEMENTWISE:
            return np.eye(size)
        return self._random.standard_normal((_DIRECTIONS, size)) / math.sqrt(size)


def _contracted(outputs: Sequence[jax.Array], adjoint: Sequence[jax.Array]) -> jax.Array:
    shapes, given = [v.shape for v in outputs], [a.shape for a in adjoint]
    if shapes != given:
        raise ArgumentError(f"expected an adjoint for outputs of the shapes {shapes}, got {given}")
    return sum((jnp.sum(v * a) for v, a in zip(outputs, adjoint, strict=True)), start=jnp.zeros(()))


def _slopes(
    loss: Callable[[Point], jax.Array], point: Point, i: int, directions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Five-point differences along directions of the i-th input, and the change of slope at the point."""
    step = STEP * jnp.maximum(1.0, jnp.max(jnp.abs(point[i]), initial=0.0))
    weights = jnp.array([[1.0, -8.0, 0.0, 8.0, -1.0], [0.0, 12.0, -24.0, 12.0, 0.0]]) / (12 * step)
    places = jnp.array([-2.0, -1.0, 0.0, 1.0, 2.0]) * step

    def along(direction: jax.Array) -> jax.Array:
        def moved(t: jax.Array) -> jax.Array:
            return loss([*point[:i], point[i] + t * direction.reshape(point[i].shape), *point[i + 1 :]])

        return weights @ jax.lax.map(moved, places)

    slopes, bends = jax.lax.map(along, directions).T
    return slopes, bends


def gradients_at(
    target: Callable[..., Node],
    values: Sequence[Any],
    adjoint: Any = None,
    *,
    fields: Mapping[str, Any] | None = None,
    seed: int = 0,
    derivatives: str = "rules",
) -> list[np.ndarray | None]:
    """The gradients of a node class or a function of nodes with respect to each of its children, in float64.

    The children have the given ``values``; the gradient is ``None`` for a child of integers, and for one that
    the output does not depend on. ``adjoint`` is an array of the output's shape, or a list with one array for
    each output of a floating point type; by default all ones. ``derivatives`` is ``"rules"``, ``"marian"`` or
    ``"jax"``, with ``surrogate_ops`` as the forward where an operator has them; ``seed`` is that of
    ``check_gradients``. ``ArgumentError`` for an ``adjoint`` that does not fit.
    """
    arrays = tuple(np.asarray(v) for v in values)
    case = Case(*(a.shape for a in arrays), **(fields or {}))
    if adjoint is not None:
        parts = adjoint if isinstance(adjoint, list | tuple) else [adjoint]
        adjoint = [numbers("gradients_at: an adjoint", part) for part in parts]
    with jax.enable_x64(True):
        recorded = RecordedExample(Example(target, case, arrays, checked_seed(seed)))
        rule_set = check_rule_set(derivatives)

        def contracted(point: Point) -> jax.Array:
            outputs = recorded.outputs(point, rule_set)
            if adjoint is None:
                return _contracted(outputs, [jnp.ones(v.shape) for v in outputs])
            return _contracted(outputs, list(map(jnp.asarray, adjoint)))

        found = jax.grad(contracted)(recorded.point(Example(target, case, arrays)))
    by_child = dict(zip(recorded.children, map(np.asarray, found), strict=True))
    return [by_child.get(i) for i in range(len(arrays))]
