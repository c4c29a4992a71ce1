"""Nodes made from a user's functions: operations without a class, and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
from jax import Array

from ..arrays import described, whole
from ..cases import Case
from ..errors import ArgumentError, ElementTypeError, GraphError, ShapeError
from ..node import NaryNodeOp, Node, UnaryNodeOp
from ..operators import signature_for, signature_of, takes
from ..places import here
from ..shape import Shape, Sizes, as_shape
from ..specs import Specs, spec_of
from ..types import Type, TypeName, as_type
from .operands import Gradients, node, nodes_in

Forward = Callable[..., Any]
Backward = Callable[..., Any]


class Functors:
    """A user's forward and backward function as a field; equal if the functions, or their ``hash``, are.

    op: the name of the operator that calls them. count: its number of children. ``ArgumentError`` for
    anything but functions, for a backward function that cannot be called with the children, for a ``hash``
    that is no whole number, and for a function that cannot be hashed without one.
    """

    __slots__ = ("_key", "backward", "forward")

    def __init__(self, op: str, count: int, forward: Forward, backward: Backward | None, hash_: int) -> None:
        if not callable(forward):
            raise ArgumentError(f"{op} expects a function, got {described(forward)}{here()}")
        if backward is not None:
            if not callable(backward):
                raise ArgumentError(f"{op}: backward must be a function, got {described(backward)}{here()}")
            if not takes(backward, 2 + count):
                called = signature_for("backward(adj, val", count)
                raise ArgumentError(f"{op} calls {called}, got {signature_of('backward', backward)}{here()}")
        self.forward, self.backward = forward, backward
        self._key: Hashable = whole(op, "hash", hash_) or (forward, backward)
        try:
            hash(self._key)
        except TypeError as e:
            raise ArgumentError(
                f"{op}: expected functions that can be hashed, or a hash other than 0: {e}{here()}"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Functors) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return getattr(self.forward, "__name__", "functor")


def _scaled_product(a: Node, b: Node) -> Node:
    return lambda_node(
        [a, b],
        a.shape,
        a.value_type,
        lambda a, b: 2 * a * b,
        lambda adj, val, a, b: (2 * adj * b, 2 * adj * a),
    )


def _doubled(x: Node) -> Node:
    return lambda_node([x], x.shape, x.value_type, lambda x: 2 * x)


class LambdaNodeOp(NaryNodeOp):
    """A forward function without a backward function: not trainable."""

    type = "lambda"
    differentiable = False
    gradient_is_derivative = False
    mixed_types = True
    sizes: Shape
    to: Type
    functors: Functors
    cases = (Case((2, 3), through=_doubled),)

    def new_spec(self, *specs: Any) -> Specs:
        found, declared = super().new_spec(*specs), spec_of(self.sizes, self.to)
        if found is not declared:
            error = (
                ShapeError if isinstance(found, tuple) or found.shape != declared.shape else ElementTypeError
            )
            raise error(f"the function was declared to give {declared!r}, it gives {found!r}")
        return declared

    def forward_ops(self, *values: Array) -> Array:
        return jax.lax.stop_gradient(self.functors.forward(*values))


class DifferentiableLambdaNodeOp(LambdaNodeOp):
    """A forward function with its backward function."""

    type = "lambda"
    gradient_is_derivative = True
    cases = (Case((2, 3), (2, 3), through=_scaled_product),)

    def forward_ops(self, *values: Array) -> Array:
        return self.functors.forward(*values)

    @property
    def users_backward(self) -> Callable[..., Any] | None:
        return self.functors.backward

    def backward_ops(self, adj: Array, val: Array, *values: Array) -> Gradients:
        assert self.functors.backward is not None
        gradients: Gradients = self.functors.backward(adj, val, *values)
        return gradients


def lambda_node(
    nodes: Sequence[Node],
    shape: Sizes,
    type: TypeName,
    forward: Forward,
    backward: Backward | None = None,
    *,
    hash: int = 0,
) -> Node:
    """``forward(*values)`` of the children's values, an operation without a class.

    ``forward`` is written in JAX (other code goes into ``jax.pure_callback``) and returns an array of
    ``shape`` and element type ``type``. ``backward(adj, val, *values)`` returns one gradient per child,
    ``None`` for no gradient, as ``backward_ops`` does. Two nodes are merged if they have the same children
    and the same functions. New function objects are compiled again, unless a ``hash`` other than 0 identifies
    what they compute. ``ShapeError`` or ``ElementTypeError`` if ``forward`` returns another shape or type,
    ``ArgumentError`` if a function is not callable, or if ``backward`` does not take these arguments.

    Shape: as declared. Gradient: that of ``backward``; without it none: the node is not trainable.
    Differs: Marian passes nodes to the functions, which write into them; here they take and return arrays.
    Source: Marian, ``lambda``.
    """
    if isinstance(nodes, Node):
        raise ArgumentError("lambda_node expects a sequence of nodes: [x], not x")
    cls = LambdaNodeOp if backward is None else DifferentiableLambdaNodeOp
    children = [node("lambda_node", n) for n in nodes_in("lambda_node", nodes)]
    functors = Functors("lambda_node", len(children), forward, backward, hash)
    return cls(*children, sizes=as_shape(shape), to=as_type(type), functors=functors)


class CallbackNodeOp(UnaryNodeOp):
    type = "callback"
    color = "grey"
    cases = (Case((2, 3)),)

    def forward_ops(self, x: Array) -> Array:
        return x

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return (adj,)


def callback(x: Node, call: Callable[[Node], Any]) -> Node:
    """``x``; whenever ``graph.forward()`` or ``graph.backprop()`` computes it, ``call(x)`` is called.

    ``call`` is ordinary Python: ``x.val()`` is the value; what it returns is ignored, what it raises reaches
    the caller of ``forward()``. It is not part of a ``graph.function``. Calls are made after the nodes are
    computed, in the order in which they were recorded. ``GraphError`` inside a loop's body, where a node has
    a value per step; ``ArgumentError`` if ``call`` is no function of a node.

    Shape: that of ``x``. Gradient: ``adj``. Source: Marian, ``callback``.
    """
    tape = node("callback", x).tape()
    if tape.parent is not None:
        raise GraphError("callback: a node in a loop's body has a value per step, none to look at")
    if not (callable(call) and takes(call, 1)):
        raise ArgumentError(f"callback expects a function of a node, got {call!r}{here()}")
    view: Node = CallbackNodeOp(x)
    tape.observers.append((view, call))
    return view


def remove_as_root(x: Node) -> Node:
    """``x``, which ``backward()`` no longer takes for a top, even if no node uses it.

    Shape: that of ``x``. Gradient: only that of its uses, none as a top. Source: Marian, ``removeAsRoot``.
    """
    node("remove_as_root", x).tape().not_roots.add(x.id)
    return x
