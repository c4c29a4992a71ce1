"""Partial shapes, and functions of inputs whose sizes are known only when they are called.

A graph is recorded with concrete shapes. A ``PartialFunction`` records its nodes again for each new
combination of sizes, and keeps the resulting functions; each of these is compiled, too.
Source: nGraph, ``PartialShape`` and ``specialize_function``.
"""

from __future__ import annotations

import inspect
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import jax

from .arrays import described
from .errors import ArgumentError, GraphError, ShapeError
from .function import Function
from .places import here
from .shape import Shape, as_shape
from .signature import Inputs
from .types import Type

MOST_FUNCTIONS = 64
"""How many combinations of sizes a ``PartialFunction`` keeps; it forgets the least recently used."""
_RECORDING = threading.RLock()
"""Held while one is looked up or recorded: calls from several threads would record on each other's tapes."""


class PartialShape(tuple[int, ...]):
    """A shape with -1 for unknown sizes; made from ints and ``None``.

    ``ShapeError`` for invalid sizes. The number of axes is always known: operators are chosen by it.
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[int | None]) -> PartialShape:
        try:
            found = tuple(-1 if n is None else operator.index(n) for n in sizes)
        except TypeError:
            raise ShapeError(f"expected sizes such as (-1, 3), got {sizes!r}") from None
        if min(found, default=0) < -1:
            raise ShapeError(f"a size must be at least 0, or -1 for an unknown one, got {found}")
        return super().__new__(cls, found)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    @property
    def is_static(self) -> bool:
        """Whether all sizes are known."""
        return -1 not in self

    def compatible(self, other: Iterable[int | None]) -> bool:
        """Whether some shape fits both."""
        theirs = PartialShape(other)
        pairs = zip(self, theirs, strict=False)
        return len(self) == len(theirs) and all(m == n or -1 in (m, n) for m, n in pairs)

    def merge(self, other: Iterable[int | None]) -> PartialShape:
        """The sizes that are known in either shape; ``ShapeError`` if the shapes contradict each other."""
        theirs = PartialShape(other)
        if not self.compatible(theirs):
            raise ShapeError(f"a shape {tuple(self)} cannot be {tuple(theirs)}")
        return PartialShape(n if m == -1 else m for m, n in zip(self, theirs, strict=True))

    def to_shape(self) -> Shape:
        """The sizes as a shape; ``ShapeError`` unless all are known."""
        if not self.is_static:
            raise ShapeError(f"not all sizes of {tuple(self)} are known")
        return tuple(self)


class Recorder(Protocol):
    """What a graph must offer so that functions can be recorded aside."""

    strict_broadcasting: bool

    @property
    def derivatives(self) -> str: ...

    def is_inference(self) -> bool: ...

    def aside(self) -> AbstractContextManager[None]: ...

    def input(self, name: str, shape: Any, type: Any = None) -> Any: ...

    def function(self, outputs: Any, inputs: Any = (), *, derivatives: str | None = None) -> Function: ...


class PartialFunction:
    """A function of arrays whose sizes may be unknown; made by ``graph.partial_function``.

    ``specialize({"x": (5, 3)})`` is the ``Function`` for particular sizes; a call, and ``pure``, use the one
    for the sizes of their arguments.
    """

    def __init__(
        self,
        graph: Recorder,
        build: Callable[..., Any],
        inputs: Mapping[str, tuple[PartialShape, Type]],
        derivatives: str | None,
    ) -> None:
        self._graph, self._build, self._derivatives = graph, build, derivatives
        self.inputs = dict(inputs)
        """Shape and element type of each input, in order."""
        try:
            inspect.signature(build).bind(**self.inputs)
        except TypeError as e:
            raise ArgumentError(
                f"partial_function: the function takes other arguments than {list(self.inputs)}: {e}{here()}"
            ) from None
        except ValueError:  # the function has no signature
            pass
        self._known: OrderedDict[tuple[tuple[Shape, ...], Any], Function] = OrderedDict()
        """The functions by the shapes and the graph's settings that they were recorded with."""

    def specialize(self, shapes: Mapping[str, Shape]) -> Function:
        """The function for inputs of these shapes, recorded if it is not yet known for the graph's present
        settings: inference, rule set and strict broadcasting.

        ``ShapeError`` for a shape that does not fit, ``GraphError`` for inputs that are missing or unknown,
        and the errors of the operators.
        """
        if not isinstance(shapes, Mapping):
            raise ArgumentError(f"specialize expects shapes by the names of inputs, got {described(shapes)}")
        if shapes.keys() != self.inputs.keys():
            raise GraphError(f"expected the inputs {list(self.inputs)}, got {list(shapes)}")
        sizes, graph = tuple(as_shape(shapes[name]) for name in self.inputs), self._graph
        for (name, (partial, _)), shape in zip(self.inputs.items(), sizes, strict=True):
            if not partial.compatible(shape):
                raise ShapeError(f"input {name!r} has shape {tuple(partial)}, got {shape}")
        key = sizes, (graph.is_inference(), graph.derivatives, graph.strict_broadcasting)
        with _RECORDING:
            if key not in self._known:
                self._known[key] = self._recorded(sizes)
                if len(self._known) > MOST_FUNCTIONS:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return self._known[key]

    def _recorded(self, shapes: tuple[Shape, ...]) -> Function:
        with self._graph.aside():
            leaves = {
                name: self._graph.input(name, shape, kind)
                for (name, (_, kind)), shape in zip(self.inputs.items(), shapes, strict=True)
            }
            return self._graph.function(self._build(**leaves), leaves, derivatives=self._derivatives)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs for these arguments, positional in the order of ``inputs`` or by name."""
        if len(args) > len(self.inputs):
            raise GraphError(f"expected the inputs {list(self.inputs)}, got {len(args)} arguments")
        given = {**dict(zip(self.inputs, args, strict=False)), **named}
        return self.specialize(self._shapes_of(given))(*args, **named)

    def pure(self, params: Mapping[str, Any], inputs: Inputs = (), key: jax.Array | None = None) -> Any:
        """The outputs as a pure function of parameters, inputs and a random key; see ``Function``."""
        if not isinstance(inputs, Mapping | Sequence):
            raise ArgumentError(
                f"expected the inputs {list(self.inputs)} as a list or by name, got {described(inputs)}"
                f"{here()}"
            )
        given = inputs if isinstance(inputs, Mapping) else dict(zip(self.inputs, inputs, strict=False))
        return self.specialize(self._shapes_of(given)).pure(params, inputs, key)

    def _shapes_of(self, arrays: Mapping[str, Any]) -> dict[str, Shape]:
        """The shapes of arrays by the names of inputs. Numbers and lists have the shape of their input if all
        its sizes are known, else ``ArgumentError``."""
        shapes = {}
        for name, value in arrays.items():
            declared = self.inputs[name][0] if name in self.inputs else PartialShape(())
            if not (hasattr(value, "shape") or declared.is_static):
                raise ArgumentError(f"input {name!r} of unknown sizes takes an array, got {value!r}")
            shapes[name] = tuple(getattr(value, "shape", declared))
        return shapes

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {kind}{list(shape)}" for name, (shape, kind) in self.inputs.items())
        count = len({sizes for sizes, _ in self._known})
        return f"PartialFunction(({inputs}); recorded for {count} combinations of sizes)"
