"""``Example``: an operator on arrays, as one case or one call of ``check_gradients`` examines it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cases import Case

Adjoint = tuple[np.ndarray, ...]
"""One array for each output of a floating point type."""


@dataclass(frozen=True, eq=False)
class Example:
    """A node class or a function of nodes, and everything that is needed to call it again."""

    operator: Callable[..., Any]
    case: Case
    """Shapes, domains and fields."""
    values: tuple[np.ndarray, ...]
    """One array per child."""
    seed: int = 0
    rule_set: str = "rules"
    adjoint: Adjoint | None = None
    """What the outputs are contracted with; ``None`` stands for the random numbers of the seed."""

    @property
    def target(self) -> Callable[..., Any]:
        """What is called with the children: the operator, or what its case puts in its place."""
        return self.case.through or self.operator

    @property
    def name(self) -> str:
        """The operator's name."""
        return getattr(self.operator, "__name__", type(self.operator).__name__)
