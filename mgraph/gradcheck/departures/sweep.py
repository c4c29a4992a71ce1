"""Operators one by one, forward and backward: what each computes, and where its rule departs from JAX.

The passes are Marian's: values in the order of recording, adjoints in reverse order, each operator by its own
compiled function. Operators that are alike share one, so a deep model compiles no more than one of its
layers. Values and adjoints are dropped as soon as nothing below needs them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import MGraphError
from ...ops.scan import ScanNodeOp
from ...rules import evaluate, row_gradients
from ...structure import Structure, is_leaf
from ..report import TOLERANCES
from .bodies import BodyOf, step_of
from .comparison import Comparison, Distance, Gradients, Pull, comparisons, distance, vector

Adjoints = dict[int, Any]
Inner = list[tuple[Comparison | None, ...]]
"""Comparisons of the rule of an operator in a body with JAX, for each step and child, in float64."""


@dataclass
class Findings:
    """What was found at one row."""

    value: Distance | None = None
    """How far the value in float32 is from that in float64; ``None`` if only float64 was asked for."""
    adjoints: dict[str, Distance] = field(default_factory=dict)
    """How far adjoints are apart: those by rules from those by JAX in each type (``float64``, ``float32``),
    and those in float32 from JAX's in float64 (``rounding`` for JAX's, ``rule_rounding`` for the rules')."""
    children: dict[str, tuple[Comparison | None, ...]] = field(default_factory=dict)
    """For each element type, the comparison of the rule with JAX for each child, at the adjoint by JAX."""
    handed_on: tuple[Distance | None, ...] = ()
    """For each child, how far the gradient that the rules hand on to it is from JAX's, in float64."""
    inner: dict[str, Inner] = field(default_factory=dict)
    """For a loop, the comparisons of the operators in its body, by row; ``3.2`` is in a nested loop."""
    problem: str = ""
    """Why the rule could not be evaluated."""


class Programs:
    """Compiled functions of single operators, each compiled by JAX for the shapes that it gets.

    ``rounding`` is that of the ``Widening`` in float64.
    """

    def __init__(self, rule_set: str, rounding: float) -> None:
        self.rule_set = rule_set
        self._tolerances = {"float64": max(TOLERANCES["float64"], rounding), "float32": TOLERANCES["float32"]}
        self._functions: dict[Any, Callable[..., Any]] = {}

    def value(self, operator: Any, children: tuple[Any, ...]) -> Any:
        """The operator's value."""
        function = partial(evaluate, operator, "jax", (False,) * len(children))
        return self._once(("value", operator), function)(children)

    def pull(self, operator: Any, trained: tuple[bool, ...]) -> Pull:
        """The gradients of an operator by its rule or by JAX."""

        def pull(rule_set: str, *given: Any) -> Gradients:
            function = partial(row_gradients, operator, rule_set, trained)
            return self._once((operator, rule_set, trained), function)(*given)

        return pull

    def compared(
        self, operator: Any, trained: tuple[bool, ...], *given: Any
    ) -> tuple[Gradients, tuple[Comparison | None, ...]]:
        """JAX's gradients, given the adjoint, the value and the children's values, and for each child how the
        rule's compares. A rule that by design is not a derivative is not compared; its own gradients are
        returned."""
        pull = self.pull(operator, trained)
        if operator.gradient_is_derivative:
            kind = "float64" if jax.config.jax_enable_x64 else "float32"
            adj, value, children = given
            tolerance = self._tolerances[kind]
            return comparisons(pull, self.rule_set, trained, adj, value, children, kind, tolerance)
        return pull(self.rule_set, *given), tuple(None for _ in trained)

    def inner(self, loop: ScanNodeOp, trained: tuple[bool, ...], adj: Any, children: Any) -> dict[str, Inner]:
        """The comparisons of the operators in a loop's body, step by step."""
        body = BodyOf(loop, trained, children)
        values, adjoints = self._once(("body", loop, trained), body.run)(adj, children)
        fixed = dict(zip(body.fixed, children[len(children) - len(body.fixed) :], strict=True))
        found: dict[str, Inner] = {}
        for step in range(loop.length):
            local = fixed | step_of(values, step)
            for i in body.judged:
                operator, *rows = body.rows[i]
                inputs, flags = tuple(local[k] for k in rows), tuple(body.flags[k] for k in rows)
                own = step_of(adjoints[i], step)
                found.setdefault(str(i), []).append(self.compared(operator, flags, own, local[i], inputs)[1])
                if isinstance(operator, ScanNodeOp):
                    for key, each in self.inner(operator, flags, own, inputs).items():
                        found.setdefault(f"{i}.{key}", []).extend(each)
        return found

    def _once(self, key: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        if key not in self._functions:
            self._functions[key] = jax.jit(function)
        return self._functions[key]


class Side:
    """The values of all rows in one element type, and the adjoints by JAX and by rules."""

    def __init__(self, structure: Structure, leaves: Sequence[Any], programs: Programs, wide: bool) -> None:
        self.rows, self._programs, self._wide = structure.rows, programs, wide
        self._leaves = iter(leaves)
        self.values: dict[int, Any] = {}
        self.by_jax: Adjoints = {}
        self.by_rule: Adjoints = {}

    def forward(self, i: int) -> Any:
        """Compute and keep the value of a row."""
        operator, *children = self.rows[i]
        with self._types():
            if is_leaf(self.rows[i]):
                value = jnp.asarray(next(self._leaves))
            else:
                value = self._programs.value(operator, tuple(self.values[k] for k in children))
        self.values[i] = value
        return value

    def start(self, i: int) -> None:
        """Start from this row: the sum of its elements is differentiated."""
        with self._types():
            ones = jnp.ones_like(self.values[i])
        self.by_jax[i], self.by_rule[i] = ones, ones

    def backward(self, i: int, flags: Sequence[bool]) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
        """Add the gradients of a row to the adjoints of its children. Returns for each child how rule and JAX
        compare at the adjoint by JAX, what JAX hands on to it, and what the rules hand on."""
        operator, *rows = self.rows[i]
        trained, children = tuple(flags[k] for k in rows), tuple(self.values[k] for k in rows)
        value, pull = self.values[i], self._programs.pull(operator, trained)
        with self._types():
            expected, compared = self._programs.compared(operator, trained, self.by_jax[i], value, children)
            found = pull(self._programs.rule_set, self.by_rule[i], value, children)
            self._add(rows, expected, found)
        return compared, expected, found

    def backward_by_jax(self, i: int, flags: Sequence[bool]) -> None:
        """Add JAX's gradients of a row whose rule cannot be evaluated to both adjoints of each child."""
        operator, *rows = self.rows[i]
        children = tuple(self.values[k] for k in rows)
        pull = self._programs.pull(operator, tuple(flags[k] for k in rows))
        with self._types():
            by_jax, by_rule = (
                pull("jax", adj[i], self.values[i], children) for adj in (self.by_jax, self.by_rule)
            )
            self._add(rows, by_jax, by_rule)

    def inner(self, i: int, flags: Sequence[bool]) -> dict[str, Inner]:
        """The comparisons of the operators in the body of a loop."""
        loop, *rows = self.rows[i]
        children = tuple(self.values[k] for k in rows)
        with self._types():
            return self._programs.inner(loop, tuple(flags[k] for k in rows), self.by_jax[i], children)

    def forget(self, i: int) -> None:
        """Drop what only rows above the i-th one needed."""
        for kept in (self.values, self.by_jax, self.by_rule):
            kept.pop(i, None)

    def _add(self, rows: Sequence[int], expected: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        for k, by_jax, by_rule in zip(rows, expected, found, strict=True):
            if by_jax is not None:
                _add(self.by_jax, k, by_jax)
                _add(self.by_rule, k, jax.tree.map(jnp.zeros_like, by_jax) if by_rule is None else by_rule)

    def _types(self) -> Any:
        return jax.enable_x64(self._wide)


class Sweep:
    """The operators below one row, examined from that row down.

    ``wide`` has values of float64; ``narrow``, if wanted, has them in the graph's own types.
    """

    def __init__(self, wide: Side, narrow: Side | None, flags: Sequence[bool]) -> None:
        self._wide, self._narrow, self._flags = wide, narrow, flags
        self.found: dict[int, Findings] = {}
        self.loss = math.nan
        """The sum of the elements of the top row."""

    def run(self, top: int) -> dict[int, Findings]:
        """What was found at each row."""
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            for i in range(len(self._wide.rows)):
                self._forward(i)
            self.loss = float(vector(self._wide.values[top]).sum())
            for side in self._sides:
                side.start(top)
            for i in reversed(range(len(self._wide.rows))):
                self._backward(i)
        return self.found

    @property
    def _sides(self) -> list[Side]:
        return [self._wide] if self._narrow is None else [self._wide, self._narrow]

    def _forward(self, i: int) -> None:
        values = [side.forward(i) for side in self._sides]
        self.found[i] = Findings(distance(*values) if self._narrow is not None else None)

    def _backward(self, i: int) -> None:
        wide, narrow, found = self._wide, self._narrow, self.found[i]
        if i in wide.by_jax and self._flags[i]:
            by_jax = wide.by_jax[i]
            found.adjoints = {"float64": distance(by_jax, wide.by_rule[i])}
            if narrow is not None:
                found.adjoints |= {
                    "float32": distance(narrow.by_jax[i], narrow.by_rule[i]),
                    "rounding": distance(by_jax, narrow.by_jax[i]),
                    "rule_rounding": distance(by_jax, narrow.by_rule[i]),
                }
            if not is_leaf(wide.rows[i]):
                self._pull(i, found)
        for side in self._sides:
            side.forget(i)

    def _pull(self, i: int, found: Findings) -> None:
        """Examine an operator, and propagate to its children."""
        wide, operator = self._wide, self._wide.rows[i][0]
        try:
            if isinstance(operator, ScanNodeOp):
                found.inner = wide.inner(i, self._flags)
            found.children["float64"], expected, handed_on = wide.backward(i, self._flags)
            found.handed_on = tuple(
                distance(e, h) if e is not None else None for e, h in zip(expected, handed_on, strict=True)
            )
        except MGraphError as e:
            found.problem = str(e)
            wide.backward_by_jax(i, self._flags)
        if self._narrow is None:
            return
        try:
            found.children["float32"] = self._narrow.backward(i, self._flags)[0]
        except MGraphError as e:
            found.problem = found.problem or f"in float32: {e}"
            self._narrow.backward_by_jax(i, self._flags)


def _add(adjoints: Adjoints, row: int, more: Any) -> None:
    adjoints[row] = jax.tree.map(jnp.add, adjoints[row], more) if row in adjoints else more
