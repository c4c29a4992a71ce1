"""The interpreter: one compiled program per operator, run node by node along a tape.

It computes what no whole program returned: the value of a node that XLA fused away, the gradient of a node
between the leaves and the top. It is far slower than a program, but compiles only what is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from ..rules import row_gradients, value_of
from ..scalars import number_vector
from ..specs import is_wide, spec_like
from ..structure import Structure, is_leaf
from ..tracing.adjoints import clipped
from .programs import Plan, compiled


@dataclass(frozen=True)
class ValuePlan(Plan):
    """The value of one operator."""

    operator: Any

    def __str__(self) -> str:
        return f"the value of {self.operator!r}"

    def __call__(self, numbers: Any, children: tuple[Any, ...]) -> Any:
        return value_of(self.operator, numbers, children)


@dataclass(frozen=True)
class GradientPlan(Plan):
    """The gradients of one operator with respect to its children."""

    operator: Any
    rule_set: str
    trained: tuple[bool, ...]

    def __str__(self) -> str:
        return f"the gradient of {self.operator!r}"

    def __call__(self, numbers: Any, adj: Any, value: Any, children: tuple[Any, ...]) -> tuple[Any, ...]:
        return row_gradients(self.operator, self.rule_set, self.trained, adj, value, children, numbers)


class Interpreter:
    """Values and adjoints of single rows of a structure.

    ``leaf_value`` gives the value of a leaf; values of operators are looked up and kept in ``values``.
    """

    def __init__(
        self,
        structure: Structure,
        leaf_value: Callable[[int], Any],
        rule_set: str,
        device: jax.Device | None,
        values: dict[int, Any],
        clip_value: float = 0.0,
    ) -> None:
        self._structure = structure
        self._rows = structure.rows
        self._leaf_value = leaf_value
        self._rule_set = rule_set
        self._device = device
        self._clip_value = clip_value
        self._values = values
        self._adjoints: dict[int, Any] = {}
        self._swept_from: int | None = None

    @cached_property
    def _trained(self) -> list[bool]:
        return self._structure.trainable()

    def value(self, row: int) -> Any:
        """The value of one row, computed from the nearest known values below it."""
        if is_leaf(self._rows[row]):
            return self._leaf_value(row)
        pending = [row]
        while pending:
            top = pending[-1]
            missing = [k for k in self._rows[top][1:] if not self._known(k)]
            if missing:
                pending += missing
                continue
            if top not in self._values:
                self._values[top] = self._apply(top)
            pending.pop()
        return self._values[row]

    def _known(self, row: int) -> bool:
        return row in self._values or is_leaf(self._rows[row])

    def adjoint(self, row: int, top: int) -> Any:
        """The gradient of the sum of ``top`` with respect to ``row``; zeros if ``top`` does not depend on
        ``row``."""
        with jax.enable_x64(self._structure.is_wide()):
            if self._swept_from != top:
                self._adjoints = {}
                self._sweep(top)
                self._swept_from = top
            if row not in self._adjoints:
                return jax.tree.map(jnp.zeros_like, self.value(row))
            return self._adjoints[row]

    def _children(self, row: int) -> tuple[Any, ...]:
        return tuple(self.value(k) for k in self._rows[row][1:])

    def _apply(self, row: int) -> Any:
        operator, numbers = self._generic(row)
        return self._run(ValuePlan(operator), numbers, self._children(row))

    def _sweep(self, top: int) -> None:
        """Marian's backward pass: from the top down, each rule adds to its children's adjoints."""
        self._adjoints[top] = jax.tree.map(jnp.ones_like, self.value(top))
        for row in range(top, -1, -1):
            if row not in self._adjoints or not self._trained[row]:
                continue
            if self._clip_value:
                self._adjoints[row] = clipped(self._clip_value, self._adjoints[row])
            if not is_leaf(self._rows[row]):
                self._pull(row)

    def _pull(self, row: int) -> None:
        (operator, numbers), children = self._generic(row), self._rows[row][1:]
        trained = tuple(self._trained[k] for k in children)
        plan = GradientPlan(operator, self._rule_set, trained)
        gradients = self._run(plan, numbers, self._adjoints[row], self.value(row), self._children(row))
        for k, train, gradient in zip(children, trained, gradients, strict=True):
            if train and gradient is not None:
                known = self._adjoints.get(k)
                self._adjoints[k] = gradient if known is None else jax.tree.map(jnp.add, known, gradient)

    def _generic(self, row: int) -> tuple[Any, tuple[float, ...]]:
        operator = self._rows[row][0]
        return operator.generic or (operator, ())

    def _run(self, plan: ValuePlan | GradientPlan, numbers: tuple[float, ...], *args: Any) -> Any:
        wide = any(is_wide(spec_like(v)) for v in jax.tree.leaves(args)) or plan.operator.makes_wide()
        return compiled(plan, device=self._device, wide=wide)(number_vector(numbers, wide), *args)
