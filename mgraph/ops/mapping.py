"""``map`` and ``reduce``: any function of numbers as an operation. Source: Alea TK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..cases import Case
from ..errors import ShapeError
from ..node import NaryNodeOp, Node, UnaryNodeOp
from .functors import Functors
from .operands import Gradients, axis_in, node, refusal


def _gated(a: Node, b: Node) -> Node:
    return map(lambda a, b: jnp.tanh(a) * b, a, b)


def _gated_with_rule(a: Node, b: Node) -> Node:
    return map(lambda a, b: a * b, a, b, backward=lambda adj, val, a, b: (adj * b, adj * a))


class MapNodeOp(NaryNodeOp):
    type = "map"
    color = "yellow"
    broadcasts = True
    functors: Functors
    cases = (Case((2, 3), (1, 3), through=_gated), Case((2, 3), (1, 3), through=_gated_with_rule))

    def forward_ops(self, *values: Array) -> Array:
        return jnp.vectorize(self._number)(*values)

    def _number(self, *numbers: Array) -> Any:
        found = self.functors.forward(*numbers)
        if shape := jnp.shape(found):
            raise ShapeError(f"the function must return a number, got an array of shape {shape}")
        return found

    @property
    def users_backward(self) -> Callable[..., Any] | None:
        return self.functors.backward

    def backward_ops(self, adj: Array, val: Array, *values: Array) -> Gradients:
        if self.functors.backward is not None:
            gradients: Gradients = self.functors.backward(adj, val, *values)
            return gradients
        return jax.vjp(self.forward_ops, *values)[1](adj)


def map(
    f: Callable[..., Any], *nodes: Node, backward: Callable[..., Any] | None = None, hash: int = 0
) -> Node:
    """``f(a, b, ...)`` for the elements of the nodes, broadcast: ``map(lambda x: 1 / (1 + jnp.exp(-x)), x)``.

    ``f`` takes and returns numbers and is written in JAX; XLA fuses it into the loop of its neighbours.
    ``backward(adj, val, a, b, ...)`` returns one gradient per node; without it JAX differentiates ``f``. Two
    nodes are merged if their functions or ``hash`` are equal, as for ``lambda_node``. ``ArgumentError`` if
    ``f`` is not callable, or if ``backward`` does not take these arguments; ``ShapeError`` if ``f`` returns
    an array with axes.

    Shape: broadcast of all. Gradient: that of ``backward``, or JAX's of ``f``. Source: Alea TK; no
    counterpart in Marian.
    """
    functors = Functors("map", len(nodes), f, backward, hash)
    return MapNodeOp(*[node("map", n) for n in nodes], functors=functors)


def _softened(x: Node) -> Node:
    return reduce(lambda a, b: jnp.logaddexp(a, b), x, 1)


class ReduceByNodeOp(UnaryNodeOp):
    type = "reduce"
    color = "orange"
    functors: Functors
    axis: int
    cases = (Case((2, 5, 2), through=_softened), Case((2, 4), through=_softened))

    def forward_ops(self, x: Array) -> Array:
        # Neighbours are combined in pairs until one is left: the depth is that of a tree.
        f = jnp.vectorize(self.functors.forward)
        while (n := x.shape[self.axis]) > 1:
            odd, even, rest = (
                jax.lax.slice_in_dim(x, *cut, self.axis)
                for cut in ((0, n - 1, 2), (1, n, 2), (n - n % 2, n, 1))
            )
            x = jnp.concatenate([f(odd, even).astype(x.dtype), rest], self.axis)
        return x

    def backward_ops(self, adj: Array, val: Array, x: Array) -> Gradients:
        return jax.vjp(self.forward_ops, x)[1](adj)


def reduce(f: Callable[[Any, Any], Any], x: Node, axis: int = 0, *, hash: int = 0) -> Node:
    """The elements along ``axis``, by default the first, combined by ``f(a, b)``, which must be associative.

    ``f`` takes and returns numbers and is written in JAX. Neighbours are combined in a tree that keeps their
    order, so ``f`` need not be commutative. A single element gives ``x`` itself. ``ArgumentError`` if ``f``
    is not callable, ``ShapeError`` if there are no elements.

    Shape: that of ``x``, with 1 at ``axis``. Gradient: JAX's of ``f``. Source: Alea TK; no counterpart in
    Marian.
    """
    axis = axis_in("reduce", x, axis)
    if x.shape[axis] == 0:
        raise refusal("reduce", f"axis {axis} has no elements to combine", x)
    functors = Functors("reduce", 1, f, None, hash)
    return x if x.shape[axis] == 1 else ReduceByNodeOp(x, functors=functors, axis=axis)
