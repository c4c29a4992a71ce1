"""A plain JAX function as a part of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..arrays import described
from ..errors import GraphError, first_line
from ..graph import ExpressionGraph
from ..names import with_article
from ..node import Node
from ..places import here, place
from ..specs import is_real, is_wide
from ..tape import Tape
from .calls import WideCalls
from .equations import Rule, Walk, whole
from .errors import BridgeError
from .primitives import RULES


def from_jax(graph: ExpressionGraph, function: Callable[..., Any], *nodes: Any) -> Any:
    """``function(*nodes)`` as nodes: a plain JAX function as a part of ``graph``.

    ``nodes`` are nodes, or dictionaries, tuples and lists of nodes, where the function takes arrays; the
    result has the structure that the function returns. The function is traced on shapes and types alone. Each
    of its primitives becomes the operator with the same value and gradient, or a node of the primitive itself
    with JAX's gradient. ``jax.jit`` and ``jax.checkpoint`` are inlined, ``lax.scan`` becomes ``scan``,
    ``lax.cond`` and ``lax.while_loop`` stay one node each. So does a function with its own gradient rule
    (``jax.custom_jvp``, ``jax.custom_vjp``), which keeps that rule. Arrays that the function closes over
    become constants. The same function on nodes of the same shapes compiles once.

    Gradients are checked in float64, so a function with a part that stays one node is also traced with
    float64. If the function does not take float64, a gradient check raises ``BridgeError``.

    ``UnsupportedPrimitiveError``, with the primitive's name and the line, for random numbers, callbacks,
    collectives, complex numbers, decompositions of matrices (``jnp.linalg.inv``, ``cholesky``) and the like;
    decompositions may occur in a function with its own rule. ``BridgeError`` for an argument that is not a
    node, and for a result that is not an array; ``GraphError`` for a node of another graph.
    """
    return translated(graph, function, nodes, RULES)


def translated(
    graph: ExpressionGraph, function: Callable[..., Any], nodes: tuple[Any, ...], rules: Mapping[str, Rule]
) -> Any:
    """``from_jax`` with the given rules."""
    if not isinstance(graph, ExpressionGraph) or not callable(function):
        raise BridgeError(
            f"expected from_jax(graph, function, *nodes), got {described(graph)} and {described(function)}"
            f"{here()}"
        )
    leaves, form = jax.tree.flatten(nodes)
    for leaf in leaves:
        if not isinstance(leaf, Node) or isinstance(leaf.spec, tuple):
            raise BridgeError(
                f"from_jax: expected nodes with one value, got {leaf!r}; fix other arguments by "
                f"functools.partial{here()}"
            )
    leaves = [leaf.current() for leaf in leaves]
    for leaf in leaves:
        if leaf.graph is not graph:
            raise GraphError(
                f"from_jax: {with_article(leaf.type)} node of {leaf.spec!r}, made at {place(leaf.where)}, "
                f"belongs to another graph{here()}"
            )
    is_wide_trace = any(is_wide(leaf.spec) for leaf in leaves)

    def traced(wide: bool) -> Any:
        structs = [_widened(leaf.spec.struct) if wide else leaf.spec.struct for leaf in leaves]
        with jax.enable_x64(wide or is_wide_trace):
            try:
                return jax.make_jaxpr(function, return_shape=True)(*jax.tree.unflatten(form, structs))
            except TypeError as e:
                if "returned a value of type" not in str(e):
                    raise
                problem = f"from_jax: expected a function that returns arrays, {first_line(e)}{here()}"
                raise BridgeError(problem) from None

    closed, shapes = traced(wide=False)
    wide_calls = WideCalls(closed, None if is_wide_trace else lambda: traced(wide=True)[0])
    walk, first = Walk(graph, rules, wide_calls), len(graph.tape.nodes)
    with graph.tape.all_or_nothing():
        results = [whole(value) for value in walk.run(closed.jaxpr, closed.consts, leaves)]
    graph.tape.hide_dead_ends(first, results)
    _hide_unseen(graph.tape, first, results)
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _widened(struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """``struct``, in float64 if it has floats."""
    return jax.ShapeDtypeStruct(struct.shape, np.float64) if is_real(struct) else struct


def _hide_unseen(tape: Tape[Node], first: int, results: list[Node]) -> None:
    """Keep nodes that only a ``stop_gradient`` or a comparison uses from becoming tops of the graph: they are
    internal to the function."""
    made = tape.nodes[first:]
    used = {child.id for node in made for child in node.children}
    flowing = {child.id for node in made if node.trainable for child in node.children}
    known = {node.id for node in results if node.tape() is tape}
    tape.not_roots.update(i for i in used - flowing - known if i >= first)
