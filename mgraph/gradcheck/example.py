"""``Example``: an operator and its arrays, as one case or one call of ``check_gradients`` examines them, and
how they are recorded.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import inits
from ..cases import Case
from ..errors import ArgumentError, GraphError
from ..graph import ExpressionGraph
from ..node import Node
from ..places import here

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
        """What takes the children: the operator, or the function that its case puts in its place."""
        return self.case.through or self.operator

    @property
    def name(self) -> str:
        """The operator's name."""
        return title_of(self.operator)


def record_case(
    graph: ExpressionGraph,
    target: Callable[..., Node],
    case: Case,
    arrays: Sequence[np.ndarray],
    element_type: str = "float64",
) -> tuple[Node, list[Node]]:
    """Record ``target`` on a case: the node, and its children, which are parameters, or constants where they
    are integers. Leaves that ``target`` makes itself, as a layer does, have the same element type."""
    graph.set_default_element_type(element_type)
    children: list[Node] = []
    for i, array in enumerate(arrays):
        init = inits.from_tensor(array)
        if np.issubdtype(array.dtype, np.floating):
            children.append(graph.param(f"child {i}", array.shape, init, element_type))
        else:
            children.append(graph.constant(array.shape, init, array.dtype))
    function = case.through or target
    if not isinstance(function, type):
        _check_call(function, children, case)
    node = function(*children, **dict(case.fields))
    if not isinstance(node, Node):
        raise GraphError(f"{title_of(target)} must return a node, got {node!r}")
    return node, children


def _check_call(function: Callable[..., Any], children: Sequence[Node], case: Case) -> None:
    """``ArgumentError`` if a function does not take this many children, or these fields."""
    try:
        inspect.signature(function).bind(*children, **dict(case.fields))
    except TypeError as e:
        given = f"{len(children)} children" + (f" and the fields {list(case.fields)}" if case.fields else "")
        raise ArgumentError(f"{title_of(function)}: {e}; it was given {given}{here()}") from None
    except ValueError:  # a callable not written in Python may have no signature
        pass


def title_of(target: Any) -> str:
    """The name that reports give a target of ``check_gradients``."""
    if isinstance(target, functools.partial):
        return title_of(target.func)
    return getattr(target, "__name__", type(target).__name__ if callable(target) else repr(target))
