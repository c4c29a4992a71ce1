"""``Writer`` collects the operations, constants and sizes of an ONNX graph; ``Rule`` writes an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...shape import Shape
from ...specs import Spec
from ...types import Type
from ..errors import UnsupportedOperatorError
from .axes import OpenAxes, Size
from .extras import extra

Name = str


class Writer:
    """The operations of one ONNX graph; each body of a loop has its own writer, with the same constants."""

    def __init__(self, axes: OpenAxes, parent: Writer | None = None) -> None:
        self.onnx = extra("onnx")
        self.axes = axes
        self.root: Writer = self if parent is None else parent.root
        self.operations: list[Any] = []
        self.initializers: dict[Name, Any] = {}
        self.axis_values: dict[str, Name] = {}
        self._names: set[Name] = set()
        self._constants: dict[tuple[Any, ...], Name] = {}

    def reserve(self, name: str) -> Name:
        """``name``, with a number appended if it is taken."""
        names, found, number = self.root._names, name, 1
        while found in names or not found:
            found = f"{name}_{number}"
            number += 1
        names.add(found)
        return found

    def op(self, kind: str, *inputs: Name, **attributes: Any) -> Name:
        """Append an operation; returns the name of its output."""
        return self.parts(kind, 1, *inputs, **attributes)[0]

    def parts(self, kind: str, outputs: int, *inputs: Name, **attributes: Any) -> tuple[Name, ...]:
        """Append an operation with several outputs; returns their names."""
        names = [self.reserve(f"{kind}_{len(self.root._names)}") for _ in range(outputs)]
        self.operations.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return tuple(names)

    def alias(self, value: Name, name: Name) -> None:
        """Give a value another name, which must be reserved already."""
        self.operations.append(self.onnx.helper.make_node("Identity", [value], [name]))

    def initializer(self, name: Name, array: Any) -> Name:
        """A constant of the model under ``name``."""
        self.root.initializers[name] = self.onnx.numpy_helper.from_array(np.array(array, order="C"), name)
        return name

    def constant(self, value: Any, dtype: Any) -> Name:
        """A small constant; equal constants share a name."""
        array = np.asarray(value, dtype)
        key = (str(array.dtype), array.shape, array.tobytes())
        constants = self.root._constants
        if key not in constants:
            constants[key] = self.initializer(self.reserve(f"constant_{len(constants)}"), array)
        return constants[key]

    def number(self, value: float, like: Spec) -> Name:
        """A scalar of the element type of ``like``."""
        return self.constant(value, like.type.dtype)

    def given(self, value: float, like: Spec, where: str) -> Name:
        """A number that the user wrote at ``where``, as a scalar of the element type of ``like``. A multiple
        of an open size, or 1 over such a multiple, follows the size."""
        size = self.axes.number(value, where)
        if size is None:
            return self.number(value, like)
        found = self.cast(self.count(size), like.type)
        if abs(value) < 1:
            found = self.op("Reciprocal", found)
        return self.op("Neg", found) if value < 0 else found

    def ints(self, *values: int) -> Name:
        """A vector of int64."""
        return self.constant(np.array(values, np.int64), np.int64)

    def element_type(self, type_: Type) -> int:
        """The ONNX code of an element type."""
        kind: int = self.onnx.helper.np_dtype_to_tensor_dtype(type_.dtype)
        return kind

    def cast(self, value: Name, type_: Type) -> Name:
        return self.op("Cast", value, to=self.element_type(type_))

    # -- sizes

    def size(self, number: int) -> Name:
        """A size as an int64 vector with one element."""
        size = self.axes.size(number)
        if not size.axes:
            return self.ints(number)
        return self.root._open_size(size)

    def _open_size(self, size: Size) -> Name:
        name = self.axis_values[size.axes[0]]
        for axis in size.axes[1:]:
            name = self._remembered("Mul", name, self.axis_values[axis])
        return name if size.factor == 1 else self._remembered("Mul", name, self.ints(size.factor))

    def _remembered(self, kind: str, *inputs: Name, **attributes: Any) -> Name:
        key = (kind, *inputs)
        if key not in self._constants:
            self._constants[key] = self.op(kind, *inputs, **attributes)
        return self._constants[key]

    def dims(self, shape: Shape) -> Name:
        """A shape as an int64 vector."""
        if not self.axes.is_open(shape):
            return self.ints(*shape)
        return self.root._remembered("Concat", *map(self.size, shape), axis=0)

    def count(self, number: int) -> Name:
        """A size as an int64 scalar."""
        if not self.axes.size(number).axes:
            return self.constant(number, np.int64)
        return self.root._remembered("Squeeze", self.size(number), self.ints(0))

    def value_info(self, name: Name, spec: Spec) -> Any:
        """The type of an input or output; open sizes under their names."""
        sizes = [self.axes.size(n) for n in spec.shape]
        shape = [str(size) if size.axes else size.factor for size in sizes]
        return self.onnx.helper.make_tensor_value_info(name, self.element_type(spec.type), shape)

    def graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The operations written so far, as an ONNX graph."""
        tensors = list(self.initializers.values())
        return self.onnx.helper.make_graph(self.operations, name, list(inputs), list(outputs), tensors)


@dataclass(frozen=True)
class Operation:
    """An operator with the shapes and types of its children and its value."""

    operator: Any
    specs: tuple[Any, ...]
    out: Any
    where: str

    def refuse(self, reason: str) -> UnsupportedOperatorError:
        return UnsupportedOperatorError(
            f"the operator {self.operator.type!r}, made at {self.where}, cannot be written to ONNX: {reason}"
        )


Rule = Callable[..., Any]
"""``rule(writer, operation, *names)``, with the names of the children's values, writes the operation and
returns the name of its value, or a tuple of names for an operator with several outputs."""


def rule_for(table: dict[type, Rule], *classes: type) -> Callable[[Rule], Rule]:
    """Decorator that adds the rule for these operator classes to ``table``."""

    def register(function: Rule) -> Rule:
        table.update(dict.fromkeys(classes, function))
        return function

    return register


def one(kind: str, **attributes: Any) -> Rule:
    """The rule of an operator that ONNX also has."""
    return lambda w, o, *xs: w.op(kind, *xs, **attributes)


def same(w: Writer, o: Operation, x: Name) -> Name:
    """The rule of an operator that changes nothing when it runs forward."""
    return x
