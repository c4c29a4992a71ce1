"""What every layer is: parameters that it declares when it is made, nodes that it makes when it is called."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mgraph import Node, inits
from mgraph.inits import Initializer
from mgraph.tape import Graph


@dataclass(frozen=True)
class Parameter:
    """A parameter of a layer, of no graph yet.

    name: Marian's. init: its first values in a new model. layer: the name of the class that declares it.
    """

    name: str
    shape: tuple[int, ...]
    init: Initializer
    layer: str
    fixed: bool = False
    """Whether it is kept from being trained."""

    def on(self, graph: Graph) -> Node:
        """Its node in a graph, which makes it if it is new there."""
        node: Node = graph.param(self.name, tuple(map(int, self.shape)), self.init, fixed=self.fixed)
        return node


class Layer(ABC):  # noqa: B024
    """Base of layers: made once with names and sizes of its parameters, called with nodes of any graph."""

    def param(
        self, name: str, rows: int, columns: int, init: Initializer | None = None, *, fixed: bool = False
    ) -> Parameter:
        """Declare the parameter ``name (rows, columns)``; Glorot uniform without an initializer."""
        return Parameter(name, (rows, columns), init or inits.glorot_uniform(), type(self).__name__, fixed)

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this layer and of the layers that it is made of; shared ones come again."""
        return _found(vars(self).values())


def _found(values: Iterable[Any]) -> Iterator[Parameter]:
    for value in values:
        if isinstance(value, Parameter):
            yield value
        elif isinstance(value, Layer):
            yield from value.parameters()
        elif isinstance(value, list | tuple):
            yield from _found(value)
