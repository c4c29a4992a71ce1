"""The interpreter: one compiled program per operator, run node by node along a tape.

It answers for what no whole program returned: the value of a node that XLA fused away, the gradient of a
node between the leaves and the top. Slower than a program by far, but it compiles only what is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp

from ..rules import row_gradients
from ..specs import is_wide, spec_like
from ..tape import Structure, is_leaf
from .programs import PROGRAMS
from .trace import clipped


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
        """The gradient of the sum of ``top`` by ``row``; zeros where ``row`` does not matter."""
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
        operator = self._rows[row][0]
        args = self._children(row)
        return self._program("value of", operator, args, operator.forward_ops)(*args)

    def _sweep(self, top: int) -> None:
        """Marian's own backward pass: from the top down, each rule adding to its children."""
        self._adjoints[top] = jax.tree.map(jnp.ones_like, self.value(top))
        for row in range(top, -1, -1):
            if row not in self._adjoints or not self._trained[row]:
                continue
            if self._clip_value:
                self._adjoints[row] = clipped(self._clip_value, self._adjoints[row])
            if not is_leaf(self._rows[row]):
                self._pull(row)

    def _pull(self, row: int) -> None:
        operator, children = self._rows[row][0], self._rows[row][1:]
        trained = tuple(self._trained[k] for k in children)
        args = (self._adjoints[row], self.value(row), self._children(row))
        rule = partial(row_gradients, operator, self._rule_set, trained)
        gradients = self._program("gradient of", operator, args, rule, trained)(*args)
        for k, train, gradient in zip(children, trained, gradients, strict=True):
            if train and gradient is not None:
                known = self._adjoints.get(k)
                self._adjoints[k] = gradient if known is None else jax.tree.map(jnp.add, known, gradient)

    def _program(self, what: str, operator: Any, args: Any, function: Callable[..., Any], *extra: Any) -> Any:
        leaves, shape = jax.tree.flatten(args)
        specs = tuple(spec_like(v) for v in leaves)
        wide = any(is_wide(s) for s in specs) or operator.makes_wide()
        key = ("operator", what, operator, specs, shape, self._rule_set, *extra)
        label = f"the {what} {operator!r}"
        return PROGRAMS.get(key, label, function, args, device=self._device, wide=wide)
