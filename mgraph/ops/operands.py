"""Shared by operators: numbers as operands, axes, element types of children."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..arrays import described, is_series, real, whole
from ..errors import ArgumentError, ElementTypeError, ShapeError
from ..inits import from_value
from ..node import NaryNodeOp, Node, UnaryNodeOp
from ..places import here
from ..recording import describe, not_a_node
from ..specs import is_real
from ..types import Type

Gradients = tuple[Any, ...]
"""What ``backward_ops`` returns: one gradient per child, ``None`` for no gradient."""


class FloatNodeOp(NaryNodeOp):
    """Base of operations that are defined on floating point children only."""

    def check_types(self, *specs: Any) -> None:
        super().check_types(*specs)
        for i, spec in enumerate(specs):
            if i not in self.index_children and not spec.type.is_float:
                raise ElementTypeError(
                    f'child {i} must be of a floating point type, got {spec.type}; cast(x, "float32")'
                )


class FloatUnaryNodeOp(FloatNodeOp, UnaryNodeOp):
    """Base of operations over one floating point child."""


def refusal(op: str, problem: str, *children: Node) -> ShapeError:
    """The error of the function ``op`` about its children, with the user's line."""
    return ShapeError(f"{op}: {problem}\n  children: {describe(children)}{here()}")


def node(op: str, x: Any) -> Node:
    """``x`` if it is a node, else ``ElementTypeError``."""
    if isinstance(x, Node):
        return x
    raise not_a_node(op, x)


def nodes_in(op: str, given: Any) -> list[Node]:
    """The series of nodes that was ``given``, as a list; ``ElementTypeError`` for a single node, or for
    anything that is no series."""
    if isinstance(given, Node) or not is_series(given):
        raise not_a_node(op, given, "a list of nodes")
    return list(given)


def wholes(op: str, name: str, values: Any) -> tuple[int, ...]:
    """The argument ``name``, several ints; ``ArgumentError`` if it is anything else."""
    if isinstance(values, Node) or not is_series(values):
        raise ArgumentError(f"{op}: {name} must be whole numbers, got {described(values)}{here()}")
    return tuple(whole(op, f"each of {name}", value) for value in values)


def axis_in(op: str, x: Any, axis: int) -> int:
    """An axis of ``x`` counted from the front; ``ShapeError`` if ``x`` has no such axis."""
    rank = len(node(op, x).shape)
    try:
        axis = operator.index(axis)
    except TypeError:
        raise ArgumentError(f"{op}: expected one axis, an int, got {axis!r}{here()}") from None
    if not -rank <= axis < rank:
        raise refusal(op, f"axis {axis} does not exist in a node with {rank} axes", x)
    return axis % rank


def axes_in(op: str, x: Any, axes: Any) -> tuple[int, ...]:
    """One or several axes of ``x``, counted from the front, in order; ``ShapeError`` if one does not exist or
    is named twice."""
    given = list(axes) if isinstance(axes, Sequence) else [axes]
    found = [axis_in(op, x, axis) for axis in given]
    if len(set(found)) != len(found):
        raise refusal(op, f"an axis is named twice in {tuple(given)}", x)
    return tuple(sorted(found))


def is_number(value: Any) -> bool:
    """Whether ``value`` is a real number of Python or numpy, which operators take in place of a node."""
    return type(value) is float or (not isinstance(value, Node) and isinstance(value, numbers.Real))


def number_for(op: str, x: Node, value: Any) -> float:
    """``value`` as a field of an operator on ``x``. If ``x`` is integer, an int, and ``ElementTypeError`` for
    a fraction, for an int that the type cannot hold, and for a bool unless ``x`` has that type: in
    ``(x == 0) * y`` it tells nothing of the values of ``x``."""
    kind = node(op, x).value_type
    if isinstance(value, bool) and kind is not Type.bool:
        raise ElementTypeError(
            f"{op}: {value} with a node of type {kind}; == and != tell whether nodes are the same, eq() and "
            f"ne() compare their values; float({value}) is a number{here()}"
        )
    if kind.is_float:
        return real(op, "the number", value)
    if not isinstance(value, numbers.Integral) and not real(op, "the number", value).is_integer():
        raise ElementTypeError(
            f'{op}: {value!r} with a node of type {kind}; cast the node: cast(x, "float32"){here()}'
        )
    number = int(value)
    if kind.is_index and not np.iinfo(kind.dtype).min <= number <= np.iinfo(kind.dtype).max:
        raise ElementTypeError(f"{op}: {kind} does not hold {value!r}; cast the node{here()}")
    return number


def wrapped(x: Node, number: float) -> Any:
    """``number`` as an operand for ``x``. If ``x`` is integer, it is wrapped into the range of the type,
    which gives the same result."""
    if x.value_type.is_float:
        return number
    return np.asarray(int(number) % 2**64, np.uint64).astype(x.value_type.dtype).item()


def constant_for(x: Node, value: Any, *, part: bool = False) -> Node:
    """A constant of ``x``'s element type and of shape (1,), or of ``x``'s shape if broadcasting is strict or
    ``x`` has no axes. Not merged with equal constants, as in Marian. ``part``: for operators that
    broadcast it to a part of ``x`` even if broadcasting is strict."""
    shape = x.shape if (x.tape().strict and not part) or not x.shape else (1,)
    return x.graph.constant(shape, from_value(value), x.value_type)


def scalar(value: float, x: Array) -> Any:
    """A field's number as an operand of ``x``: weakly typed, or wrapped to an integer type."""
    return np.asarray(value).astype(x.dtype) if isinstance(value, int) else value


def known(value: Any, number: float) -> bool:
    """Whether a runtime field is known to be its default ``number`` while a program is made."""
    return isinstance(value, float) and value == number


def as_positions(indices: Array) -> Array:
    """Indices as positions along an axis; 8- and 16-bit indices become int32. JAX counts positions in the
    type of the indices, which may not hold all positions."""
    return indices.astype(jnp.int32) if indices.dtype.itemsize < 4 else indices


def unless_nan(x: Array, gradient: Array) -> Array:
    """``gradient``, but NaN where ``x`` is NaN: a rule that compares numbers must not hide a NaN."""
    return jnp.where(jnp.isnan(x), x, gradient) if is_real(x) else gradient


def accumulable(x: Array) -> Array:
    """``x`` as float32 if it has 16 bits: sums and exponentials over an axis need more bits."""
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
