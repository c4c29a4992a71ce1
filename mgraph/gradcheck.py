"""Gradients held against three witnesses: the hand-written rules, JAX's own derivatives, differences.

Everything is computed in float64, whatever the element type of the graph, so that a rule that is one per
cent wrong cannot hide behind rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import inits
from .cases import Case
from .errors import GradientError, GraphError
from .graph import ExpressionGraph
from .leaves import ConstantNode, ParamNode
from .node import NaryNodeOp, Node
from .operators import make_operator
from .ops.scan import Body
from .places import place
from .tape import Excerpt, Structure, is_leaf
from .trace import trace
from .types import Type

_ELEMENTWISE = 48
"""Inputs up to this many elements are moved one element at a time, larger ones along random directions."""
_DIRECTIONS = 12
_STEP = 2e-4
"""Step of the five-point difference, relative to the size of the input; its error goes as step**4."""

TOLERANCE_JAX = 1e-10
TOLERANCE_DIFFERENCES = 1e-6


@dataclass(frozen=True)
class GradientCheck:
    """The gradient by one input, held against the witnesses."""

    name: str
    shape: tuple[int, ...]
    jax_difference: float
    """Largest difference to JAX's own derivative, relative to the largest gradient."""
    finite_difference: float
    """The same to central differences."""
    problem: str = ""
    """Why the rule could not be evaluated, if it could not."""

    @property
    def ok(self) -> bool:
        """Whether the rule agrees with both witnesses."""
        return (
            not self.problem
            and self.jax_difference <= TOLERANCE_JAX
            and self.finite_difference <= TOLERANCE_DIFFERENCES
        )


@dataclass(frozen=True)
class GradientReport:
    """What ``check_gradients`` found; prints as a table."""

    title: str
    checks: tuple[GradientCheck, ...]
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether every gradient agrees with both witnesses."""
        return all(check.ok for check in self.checks)

    def raise_if_wrong(self) -> None:
        """``GradientError`` with the table if a gradient is wrong."""
        if not self.ok:
            raise GradientError(f"wrong gradients\n{self}")

    def __str__(self) -> str:
        width = max([len("gradient by"), *(len(c.name) for c in self.checks)])
        lines = [
            self.title,
            f"  {'gradient by':{width}}  {'shape':14}  {'rule - jax':>10}  {'rule - diff':>11}  verdict",
        ]
        for c in self.checks:
            verdict = "ok" if c.ok else c.problem or "WRONG"
            shape = "x".join(map(str, c.shape)) or "scalar"
            lines.append(
                f"  {c.name:{width}}  {shape:14}  {c.jax_difference:10.1e}  "
                f"{c.finite_difference:11.1e}  {verdict}"
            )
        return "\n".join([*lines, f"  {self.note}"] if self.note else lines)


Target = ExpressionGraph | Node | type[NaryNodeOp] | Callable[..., Node]


def check_gradients(
    target: Target,
    *shapes: Sequence[int],
    fields: Mapping[str, Any] | None = None,
    values: Sequence[Any] | None = None,
    seed: int = 0,
    rule_set: str = "rules",
) -> GradientReport:
    """Hold hand-written gradients against ``jax.grad`` of the same forward and against differences.

    ``target`` is one of

    - a node: the gradients of that node by every trainable leaf below it, at the leaves' present values
      (by every floating point leaf if none is trainable);
    - a graph: the same for its one top node;
    - a node class, yours or a built-in one, or a function of nodes: called on fresh nodes of ``shapes``
      (drawn from a normal distribution, or ``values``) with ``fields`` as keywords. A class without
      ``shapes`` is checked on each of its ``cases``.

    The output is contracted with a random adjoint. Differences are five-point central ones. Agreement means
    a relative difference of at most 1e-10 to JAX and 1e-6 to the differences. The report prints as a table;
    ``report.ok`` is the verdict. Functions that are not smooth at the given values (``relu`` at 0, ties of
    ``max``) cannot be judged by differences there.
    """
    if isinstance(target, ExpressionGraph):
        top = target.tape.nodes[target.run_of(target.tape).one_top()]
        return _check_node(top, seed, rule_set)
    if isinstance(target, Node):
        return _check_node(target, seed, rule_set)
    if shapes or values is not None:
        shapes = shapes or tuple(np.shape(v) for v in values or ())
        case = Case(*(tuple(s) for s in shapes), **(fields or {}))
        return _check_case(target, case, seed, rule_set, values)
    cases = getattr(target, "cases", ())
    if not cases:
        raise GraphError(f"{_title(target)} declares no cases; give the shapes of its children")
    reports = [_check_case(target, case, seed + i, rule_set) for i, case in enumerate(cases)]
    checks = tuple(
        GradientCheck(f"{case} {c.name}", c.shape, c.jax_difference, c.finite_difference, c.problem)
        for case, report in zip(cases, reports, strict=True)
        for c in report.checks
    )
    return GradientReport(_title(target), checks, reports[0].note)


def _title(target: Any) -> str:
    return getattr(target, "__name__", repr(target))


def _check_case(
    target: Callable[..., Node], case: Case, seed: int, rule_set: str, values: Sequence[Any] | None = None
) -> GradientReport:
    graph = ExpressionGraph(seed=seed + 1)
    arrays = case.values(seed) if values is None else [np.asarray(v) for v in values]
    children: list[Node] = []
    for i, array in enumerate(arrays):
        init = inits.from_tensor(array)
        if np.issubdtype(array.dtype, np.floating):
            children.append(graph.param(f"child {i}", array.shape, init, "float64"))
        else:
            children.append(graph.constant(array.shape, init, array.dtype))
    node = target(*children, **dict(case.fields))
    if not isinstance(node, Node):
        raise GraphError(f"{_title(target)} must return a node, got {node!r}")
    report = _check_node(node, seed, rule_set)
    return GradientReport(f"{_title(target)} {case}", report.checks, report.note)


def _check_node(node: Node, seed: int, rule_set: str) -> GradientReport:
    graph, tape = node.graph, node.tape()
    excerpt = tape.below([node.id])
    nodes = [tape.nodes[i] for i in excerpt.inputs]
    chosen = [k for k, n in enumerate(nodes) if n.trainable] or [
        k for k, n in enumerate(nodes) if n.value_type.is_float
    ]
    title = f"{node.type} {list(node.shape)} made at {place(node.where)}"
    if not chosen:
        return GradientReport(title, (), "nothing below this node can have a gradient")
    below = [n for n in tape.nodes[: node.id + 1] if n.id in excerpt.row_of]
    by_design = sorted({n.type for n in below if not n.gradient_is_derivative})
    by_design += [f"frozen {n.type}" for n in below if n.children and tape.overrides.get(n.id) is False]
    note = f"not derivatives by design: {', '.join(by_design)}" if by_design else ""
    with jax.enable_x64(True):
        leaves = [_wide(n.leaf_value()) for n in nodes]
        excerpt = replace(excerpt, structure=_widened(excerpt.structure))
        problem = _Problem(excerpt, excerpt.row_of[node.id], chosen, leaves, graph.seed, seed)
        checks = problem.checks([_leaf_name(nodes[k]) for k in chosen], rule_set)
    return GradientReport(title, checks, note)


def _leaf_name(node: Node) -> str:
    if isinstance(node, ParamNode | ConstantNode) and node.name != "none":
        return node.name
    return f"{node.type} {node.id}"


def _wide(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _widened(structure: Structure) -> Structure:
    """The same computation where nothing is cut below float64 on the way: casts to floating point types,
    also those in bodies of loops, cast to float64."""
    rows = (row if is_leaf(row) else (_wide_operator(row[0]), *row[1:]) for row in structure.rows)
    return structure._replace(rows=tuple(rows))


def _wide_operator(operator: Any) -> Any:
    fields = {name: _wide_field(getattr(operator, name)) for name in operator.fields}
    return make_operator(type(operator), fields)


def _wide_field(value: Any) -> Any:
    if isinstance(value, Type) and value.is_float:
        return Type.float64
    if isinstance(value, Body):
        return replace(value, structure=_widened(value.structure))
    return value


class _Problem:
    """One output as a function of some leaves, in float64."""

    def __init__(
        self,
        excerpt: Excerpt,
        output: int,
        chosen: Sequence[int],
        leaves: Sequence[np.ndarray],
        draw_seed: int,
        seed: int,
    ) -> None:
        self._excerpt, self._output, self._chosen, self._leaves = excerpt, output, chosen, leaves
        self._key = jax.random.key(draw_seed & 0xFFFFFFFF)
        self._random = np.random.default_rng(seed)
        self._point = [jnp.asarray(leaves[k]) for k in chosen]
        shapes = jax.eval_shape(lambda v: self._values(v, "jax"), self._point)
        self._adjoint = jax.tree.map(self._random_like, shapes)

    def _random_like(self, spec: Any) -> Any:
        if not jnp.issubdtype(spec.dtype, jnp.floating):
            return None
        return jnp.asarray(self._random.standard_normal(spec.shape) + 0.5)

    def _values(self, point: Sequence[Any], rule_set: str) -> Any:
        leaves: list[Any] = list(self._leaves)
        for k, value in zip(self._chosen, point, strict=True):
            leaves[k] = value
        trained = tuple(k in self._chosen for k in range(len(leaves)))
        values = trace(self._excerpt.structure, leaves, rule_set=rule_set, trained=trained, key=self._key)
        return values[self._output]

    def _loss(self, point: Sequence[Any], rule_set: str) -> Any:
        values = self._values(point, rule_set)
        pairs = zip(jax.tree.leaves(values), _flat(self._adjoint), strict=True)
        return sum(jnp.sum(v * a) for v, a in pairs if a is not None)

    def checks(self, names: Sequence[str], rule_set: str) -> tuple[GradientCheck, ...]:
        """One check per input; rule, JAX and differences are computed by one program."""
        directions = [self._directions(math.prod(p.shape)) for p in self._point]

        @jax.jit
        def witnesses(point: list[jax.Array], directions: list[jax.Array]) -> tuple[Any, Any, Any]:
            by_rule = jax.grad(lambda p: self._loss(p, rule_set))(point)
            by_jax = jax.grad(lambda p: self._loss(p, "jax"))(point)
            measured = [self._slopes(point, i, along) for i, along in enumerate(directions)]
            return by_rule, by_jax, measured

        try:
            by_rule, by_jax, measured = witnesses(self._point, directions)
        except GradientError as e:
            return tuple(
                GradientCheck(n, p.shape, math.inf, math.inf, str(e))
                for n, p in zip(names, self._point, strict=True)
            )
        return tuple(
            GradientCheck(
                name,
                gradient.shape,
                _relative(gradient, expected, expected),
                _relative(along @ gradient.reshape(-1), slopes, expected),
            )
            for name, gradient, expected, along, slopes in zip(
                names, by_rule, by_jax, directions, measured, strict=True
            )
        )

    def _directions(self, size: int) -> jax.Array:
        """Directions in which an input of ``size`` elements is moved, one per row."""
        if size <= _ELEMENTWISE:
            return jnp.eye(size)
        return jnp.asarray(self._random.standard_normal((_DIRECTIONS, size)) / math.sqrt(size))

    def _slopes(self, point: list[jax.Array], i: int, directions: jax.Array) -> jax.Array:
        """Five-point differences of the loss along directions of the i-th input."""
        step = _STEP * jnp.maximum(1.0, jnp.max(jnp.abs(point[i])))
        weights = jnp.array([1.0, -8.0, 8.0, -1.0]) / (12 * step)
        places = jnp.array([-2.0, -1.0, 1.0, 2.0]) * step

        def moved(direction: jax.Array, t: jax.Array) -> jax.Array:
            shifted = list(point)
            shifted[i] = point[i] + t * direction.reshape(point[i].shape)
            return self._loss(shifted, "jax")

        def slope(direction: jax.Array) -> jax.Array:
            return weights @ jax.lax.map(lambda t: moved(direction, t), places)

        return jax.lax.map(slope, directions)


def _flat(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda x: x is None)


def _relative(found: Any, expected: Any, scale: Any) -> float:
    """Largest difference over the largest magnitude; infinite where a value is not finite."""
    difference = float(np.max(np.abs(np.asarray(found) - np.asarray(expected)), initial=0.0))
    size = float(np.max(np.abs(np.asarray(scale)), initial=0.0))
    if not math.isfinite(difference):
        return math.inf
    return difference / max(size, 1e-3)
