"""Python's operators on nodes: ``a + b``, ``2 * x``, ``-x``, ``x ** 2``, ``a @ b``, ``a < b``, ``x[1:3]``.

The operators import the node classes, so this module attaches the methods to ``Node``. ``==`` and ``!=``
compare identity, because nodes are dictionary keys and are looked up in lists; ``mgraph.eq`` and
``mgraph.ne`` compare values. A node is neither true nor false: its value is not known while the graph is
recorded, so ``if a < b`` and ``a < b < c`` are errors.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arrays import is_array
from .errors import ElementTypeError, GraphError
from .names import with_article
from .node import Node
from .ops.arithmetic import div, minus, mult, negate, plus
from .ops.comparison import ge, gt, le, lt
from .ops.elementwise import abs as absolute
from .ops.operands import is_number, refusal
from .ops.power import power
from .ops.product import bdot, dot
from .ops.shape import reshape
from .ops.shape import slice as slice_along
from .places import here
from .recording import not_a_node
from .shape import Slice

Binary = Callable[[Any, Any], Node]


def matmul(a: Node, b: Node) -> Node:
    """``a @ b``: ``dot`` with a matrix ``b``, ``bdot`` with a batch of matrices.

    Shape: (..., m, k) and (k, n) or (..., k, n) to (..., m, n).
    Gradient: ``adj b^T`` for ``a``, ``a^T adj`` for ``b``.
    Source: Marian, ``dot`` and ``bdot``.
    """
    return dot(a, b) if len(b.shape) == 2 else bdot(a, b)


def item(x: Node, index: Any) -> Node:
    """``x[index]`` with ints, slices and ``...``, as in numpy: an int drops its axis, unlike ``slice``.

    Negative positions count from the end. ``ShapeError`` for a position or slice outside of the axis, an
    empty slice or a negative stride; ``ElementTypeError`` for lists and arrays of positions, which
    ``index_select`` takes.

    Shape: that of ``x``, each axis cut to its slice, without the axes that ints index.
    Gradient: ``adj`` where selected, else 0.
    Source: no counterpart in Marian; ``slice`` and ``reshape``.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [place for place, part in enumerate(parts) if part is ...]
    if len(dots) > 1 or len(parts) - len(dots) > len(x.shape):
        raise refusal("[]", f"too many indices {index!r}", x)
    for at in dots:
        parts[at : at + 1] = [slice(None)] * (len(x.shape) - len(parts) + 1)
    with x.tape().all_or_nothing():
        return _cut(x, parts)


def _cut(x: Node, parts: Sequence[Any]) -> Node:
    """``x[parts]``, where the parts are for the first axes, without ``...``."""
    dropped = set()
    for axis, part in enumerate(parts):
        if isinstance(part, slice):
            begin, end, stride = part.start, part.stop, part.step
            chosen = Slice(
                0 if begin is None else begin,
                Slice.END if end is None else end,
                1 if stride is None else stride,
            )
            x = slice_along(x, axis, chosen)
            continue
        try:
            if isinstance(part, bool | np.bool_):
                raise TypeError("a truth value is not a position")
            position = operator.index(part)
        except TypeError:
            raise ElementTypeError(
                f"[]: expected ints and slices, got {part!r}; index_select(x, axis, indices) takes lists and "
                f"arrays of positions{here()}"
            ) from None
        x = slice_along(x, axis, position)
        dropped.add(axis)
    return reshape(x, tuple(n for axis, n in enumerate(x.shape) if axis not in dropped))


def truth(x: Node) -> bool:
    """``GraphError``: a node is neither true nor false."""
    raise GraphError(
        f"{x.type} {x.spec!r} is neither true nor false: values are not known while recording, so `if`, "
        "`and`, `or`, `not` and a < b < c cannot ask for one. Element by element: mgraph.lt, le, gt, ge, eq "
        "and ne give 0 or 1, their product is `and`; mgraph.maximum and minimum choose. A number, after "
        f"graph.forward(): node.scalar(). To test for a missing node: `is None`.{here()}"
    )


def as_number(x: Node) -> float:
    """``GraphError``: a node is not a number."""
    raise GraphError(
        f"{x.type} {x.spec!r} is not a number: values are not known while recording; after graph.forward(), "
        f"node.scalar() is one{here()}"
    )


def _operator(symbol: str, function: Binary, *, reflected: bool = False, numbers: bool = True) -> Binary:
    """The method for ``function``; it returns ``NotImplemented`` for operands of an unknown type."""

    @functools.wraps(function)
    def method(self: Node, other: Any) -> Any:
        if isinstance(other, Node) or (numbers and is_number(other)):
            return function(other, self) if reflected else function(self, other)
        if is_array(other):
            raise not_a_node(symbol, other, "a node or a number" if numbers else "a node")
        return NotImplemented

    return method


def as_array(self: Node, *_: Any, **__: Any) -> Any:
    """``GraphError``: neither numpy nor JAX can take a node as an array."""
    raise GraphError(
        f"{with_article(self.type)} node of {self.spec!r} is not an array: its value is not known while "
        "recording. Functions of mgraph take nodes (mgraph.sin for jnp.sin), mgraph.map and "
        "mgraph.lambda_node apply functions of jax.numpy; after graph.forward() the array is "
        f"node.val(){here()}"
    )


_UFUNCS: dict[np.ufunc, Binary] = {
    np.add: plus,
    np.subtract: minus,
    np.multiply: mult,
    np.divide: div,
    np.power: power,
    np.less: lt,
    np.less_equal: le,
    np.greater: gt,
    np.greater_equal: ge,
}


def array_ufunc(self: Node, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
    """numpy's operators with a node as operand, such as ``np.float64(2) * x``; 0-d arrays pass as numbers."""
    if ufunc in (np.equal, np.not_equal):  # as for Python's ==: identity
        return (inputs[0] is inputs[1]) is (ufunc is np.equal)
    if ufunc in _UFUNCS and method == "__call__" and not settings:
        one, other = (x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs)
        if isinstance(one, Node):
            return _operator(f"numpy.{ufunc.__name__}", _UFUNCS[ufunc])(one, other)
        return _operator(f"numpy.{ufunc.__name__}", _UFUNCS[ufunc], reflected=True)(other, one)
    return as_array(self)


METHODS: dict[str, Any] = {
    "__add__": _operator("+", plus),
    "__radd__": _operator("+", plus, reflected=True),
    "__sub__": _operator("-", minus),
    "__rsub__": _operator("-", minus, reflected=True),
    "__mul__": _operator("*", mult),
    "__rmul__": _operator("*", mult, reflected=True),
    "__truediv__": _operator("/", div),
    "__rtruediv__": _operator("/", div, reflected=True),
    "__pow__": _operator("**", power),
    "__rpow__": _operator("**", power, reflected=True),
    "__matmul__": _operator("@", matmul, numbers=False),
    "__rmatmul__": _operator("@", matmul, reflected=True, numbers=False),
    "__neg__": negate,
    "__abs__": absolute,
    # With a number on the left, Python calls the node's mirrored comparison.
    "__lt__": _operator("<", lt),
    "__le__": _operator("<=", le),
    "__gt__": _operator(">", gt),
    "__ge__": _operator(">=", ge),
    "__bool__": truth,
    "__float__": as_number,
    "__int__": as_number,
    "__getitem__": item,
    # A node can be indexed, but it is not a sequence: unpacking one is a mistake.
    "__iter__": None,
    "__array_ufunc__": array_ufunc,
    "__array__": as_array,
    "__jax_array__": property(as_array),  # a property, since JAX looks it up without calling it
}


def attach() -> None:
    """Give ``Node`` its operators."""
    for name, method in METHODS.items():
        setattr(Node, name, method)


attach()
