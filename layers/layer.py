"""Base of layers: they declare parameters when made, and record nodes when called."""

from __future__ import annotations

import operator
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mgraph import ArgumentError, MGraphError, Node, ShapeError, inits
from mgraph.arrays import text
from mgraph.inits import Initializer
from mgraph.leaves import check_initializer
from mgraph.ops.operands import node
from mgraph.tape import Graph

_MOST_NAMES = 4
"""The most parameters that a layer's ``repr`` names."""


@dataclass(frozen=True)
class Parameter:
    """A layer's parameter, independent of a graph.

    name: as in Marian. init: the initializer for new models. layer: the name of the class that declares it.
    """

    name: str
    shape: tuple[int, ...]
    init: Initializer
    layer: str
    fixed: bool = False
    """Whether it is excluded from training."""
    contracted: int | None = None
    """The axis that products sum over, for a matrix that may be held as int8, with scales along the other
    axis (``layers.products``); ``None`` for a parameter that is always in floating point."""

    def on(self, graph: Graph) -> Node:
        """The parameter's node in ``graph``, made on first use; ``ArgumentError`` if ``graph`` is a node."""
        if isinstance(graph, Node):
            raise ArgumentError(
                f"parameter {self.name!r}: expected a graph, got a node; its graph is x.graph"
            )
        node: Node = graph.param(self.name, tuple(map(int, self.shape)), self.init, fixed=self.fixed or None)
        return node

    def graph_of(self, x: Node) -> Graph:
        """The graph of ``x``, the input of the parameter's layer; ``ElementTypeError`` if it is no node."""
        return graph_of(f"{self.layer} with {self.name!r}", x)


class Layer(ABC):  # noqa: B024
    """Base of layers: made once with its parameters' names and sizes, then called with nodes of any graph."""

    def param(
        self,
        name: str,
        rows: int,
        columns: int,
        init: Initializer | None = None,
        *,
        fixed: bool = False,
        contracted: int | None = None,
    ) -> Parameter:
        """Declare the parameter ``name (rows, columns)``; Glorot uniform without an initializer.

        init: an initializer of ``mgraph.inits``. fixed: whether training leaves it alone. contracted: see
        ``Parameter``. The parameter's node in a graph is ``parameter.on(graph)``. ``ShapeError`` for sizes
        that are not positive ints, ``ArgumentError`` if ``init`` is no initializer or the name is not a
        string.
        """
        name = text("the name of a parameter", name)
        shape = size(f"rows of {name!r}", rows), size(f"columns of {name!r}", columns)
        init = inits.glorot_uniform() if init is None else check_initializer(init)
        return Parameter(name, shape, init, type(self).__name__, fixed, contracted)

    def __repr__(self) -> str:
        declared = {parameter.name: parameter.shape for parameter in self.parameters()}
        names = ", ".join(f"{name} {list(shape)}" for name, shape in list(declared.items())[:_MOST_NAMES])
        more = f" and {len(declared) - _MOST_NAMES} more" if len(declared) > _MOST_NAMES else ""
        return f"{type(self).__name__}({names}{more})"

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this layer and its sublayers, including those in lists, tuples and mappings;
        shared parameters are repeated."""
        return _found(vars(self).values())


def graph_of(what: str, x: Node) -> Graph:
    """The graph of ``x``, the input of ``what``; ``ElementTypeError`` if it is no node."""
    return node(what, x).graph


def of_class(what: str, value: Any, expected: type[Any]) -> Any:
    """``value``; ``ArgumentError``, which names ``what``, unless it is of the class ``expected``."""
    if not isinstance(value, expected):
        raise ArgumentError(f"{what}: expected a {expected.__name__}, got {value!r}")
    return value


def size(what: str, value: Any, least: int = 1, *, error: type[MGraphError] = ShapeError) -> int:
    """``value``, an int or an integer of NumPy's, as an int; ``error``, which names ``what``, for anything
    else, for a bool, and for an int below ``least``."""
    try:
        # Return an int as it is: an instance of a subclass may carry more than its value.
        found = value if isinstance(value, int) else operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(found, bool) or found < least:
        raise error(f"{what}: expected an int from {least}, got {value!r}")
    return found


def _found(values: Iterable[Any]) -> Iterator[Parameter]:
    for value in values:
        if isinstance(value, Parameter):
            yield value
        elif isinstance(value, Layer):
            yield from value.parameters()
        elif isinstance(value, list | tuple):
            yield from _found(value)
        elif isinstance(value, Mapping):
            yield from _found(value.values())
