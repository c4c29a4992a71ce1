"""What is compiled to examine the compiler: functions of one example, mapped over many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from ..cases import Case
from ..graph import ExpressionGraph
from ..tracing.trace import trace
from .check import record_case


@dataclass(frozen=True)
class Subject:
    """A function of one example, mapped over many: an operator on a case, a composition on a case.

    ``shared`` are the children that all examples have in common, weights. ``plain`` is a function of JAX
    arrays in place of one of nodes.
    """

    name: str
    target: Callable[..., Any]
    case: Case
    shared: tuple[int, ...] = ()
    plain: bool = False

    @property
    def is_composition(self) -> bool:
        """Whether it is made of several operators."""
        return not isinstance(self.target, type)

    @cached_property
    def _parts(self) -> list[int | None]:
        """For each child how many numbers an example has of it, ``None`` if it is shared."""
        return [None if i in self.shared else math.prod(s) for i, s in enumerate(self.case.shapes)]

    def most_rows(self, most_bytes: int) -> int:
        """Of how many examples no array, in float64, is larger than that."""
        outputs = jax.tree.leaves(jax.eval_shape(self.function("float64"), *self.case.values()))
        largest = max([part or 1 for part in self._parts] + [math.prod(o.shape) for o in outputs])
        return max(1, most_bytes // (8 * max(1, largest)))

    def arrays(self, rows: int, seed: int = 0) -> list[np.ndarray]:
        """Values of the children of so many examples, in float64: numbers that float32 has, too."""
        found = self.case.values(seed, rows)
        return [_representable(array[0] if i in self.shared else array) for i, array in enumerate(found)]

    def first(self, arrays: Sequence[np.ndarray], rows: int) -> list[np.ndarray]:
        """The arrays of the first so many examples."""
        return [a if i in self.shared else a[:rows] for i, a in enumerate(arrays)]

    def function(self, element_type: str) -> Callable[..., Any]:
        """The function of the values of one example's children, in an element type."""
        if self.plain:
            return self.target
        graph = ExpressionGraph(seed=1)
        node, children = record_case(graph, self.target, self.case, self.case.values(), element_type)
        tape = node.tape()
        excerpt = tape.below([node.id])
        inputs = [tape.nodes[i] for i in excerpt.inputs]
        known = {child.id: i for i, child in enumerate(children)}
        sources = [known.get(n.id) for n in inputs]
        own = [None if n.id in known else np.asarray(n.leaf_value()) for n in inputs]
        structure, output, key = excerpt.structure, excerpt.row_of[node.id], jax.random.key(1)

        def computed(*values: Any) -> Any:
            leaves = [own[i] if k is None else values[k] for i, k in enumerate(sources)]
            return trace(structure, leaves, key=key)[output]

        return computed

    def mapped(self, element_type: str) -> Callable[..., Any]:
        """The function of the values of all examples' children."""
        axes = tuple(None if i in self.shared else 0 for i in range(len(self.case.shapes)))
        return jax.vmap(self.function(element_type), axes)


def _representable(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32).astype(np.float64) if array.dtype == np.float64 else array
