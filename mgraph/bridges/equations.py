"""Translates a JAX function into nodes, equation by equation, with a rule for each primitive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.extend.core.primitives import broadcast_in_dim_p

from .. import inits
from ..arrays import described, refuse_traced
from ..errors import ElementTypeError
from ..graph import ExpressionGraph
from ..node import Node
from ..places import here
from ..shape import Shape
from ..specs import has_float, holds_keys
from ..types import as_type
from .calls import Call, WideCalls, apply_call
from .errors import UnsupportedPrimitiveError
from .primitive_node import DifferentiablePrimitiveNodeOp, PrimitiveNodeOp, apply_primitive

JAX_FOLDER = str(Path(jax.__file__).parent / "_")[:-1]
_ROOM = str(Path(__file__).parent.parent / "_")[:-1]


@dataclass(frozen=True)
class Spread:
    """A node that stands for its broadcast to ``shape``, which has as many axes. Elementwise operators
    broadcast by themselves, so most broadcasts of a JAX function need no node."""

    node: Node
    shape: Shape


Value = Node | Spread
Result = Value | Sequence[Value]


class Equation:
    """One equation of a JAX function, as the rule of its primitive sees it."""

    def __init__(self, walk: Walk, source: core.JaxprEqn, values: Sequence[Value | np.ndarray]) -> None:
        self.walk, self.source, self.values = walk, source, list(values)
        self.params: dict[str, Any] = source.params
        self.primitive: core.Primitive = source.primitive

    @property
    def outs(self) -> list[Any]:
        """Shape and dtype of each result."""
        return [var.aval for var in self.source.outvars]

    @property
    def out(self) -> Any:
        """Shape and dtype of the first result."""
        return self.outs[0]

    def aval(self, i: int) -> Any:
        """Shape and dtype of operand ``i``."""
        return self.source.invars[i].aval

    def number(self, i: int) -> float | int | None:
        """Operand ``i`` as a Python number if it is written into the function as one."""
        value = self.values[i]
        if isinstance(value, np.ndarray) and value.shape == () and value.dtype != bool:
            return int(value) if value.dtype.kind in "iu" else float(value)
        return None

    def loose(self, i: int) -> Node:
        """Operand ``i`` as a node that broadcasts to its shape."""
        value = self.values[i]
        if isinstance(value, np.ndarray):
            return self.walk.constant(value)
        return value.node if isinstance(value, Spread) else value

    def node(self, i: int) -> Node:
        """Operand ``i`` as a node of its full shape."""
        value = self.values[i]
        return self.walk.constant(value) if isinstance(value, np.ndarray) else whole(value)

    def all_loose(self) -> list[Node]:
        return [self.loose(i) for i in range(len(self.values))]

    def all_nodes(self) -> list[Node]:
        return [self.node(i) for i in range(len(self.values))]

    def as_primitive(self, children: list[Node]) -> list[Node]:
        """The results of a node of the primitive itself."""
        base = DifferentiablePrimitiveNodeOp if self._has_gradient(children) else PrimitiveNodeOp
        return apply_primitive(self.primitive, children, self.params, base)

    def as_call(self) -> list[Node]:
        """The results of a node that keeps the called function, with its own rule if it has one."""
        atoms = enumerate(self.source.invars)
        operands = {atom: i for i, atom in atoms if not isinstance(atom, core.Literal)}
        children = [self.node(i) for i in operands.values()]
        call = Call(self.source, self.walk.wide_calls.of(self.source))
        if not children:
            with jax.enable_x64(any(aval.dtype.itemsize == 8 for aval in self.outs)):
                return [self.walk.constant(np.asarray(value)) for value in call()]
        return apply_call(call, self.source, children, self._has_gradient(children))

    def _has_gradient(self, children: list[Node]) -> bool:
        real = any(as_type(aval.dtype).is_float for aval in self.outs)
        return real and any(has_float(child.spec) for child in children)

    def where(self) -> str:
        """The line of the user's function that this equation comes from, directly or through a function of
        JAX that the line calls."""
        for source in (self.source, *reversed(self.walk.around)):
            frames = getattr(getattr(source, "source_info", None), "traceback", None)
            for frame in getattr(frames, "frames", ()):
                if not frame.file_name.startswith((JAX_FOLDER, _ROOM)):
                    return f"{frame.file_name}:{frame.line_num}"
        return "an unknown line"


Rule = Callable[[Equation], Result]


def whole(value: Value) -> Node:
    """``value`` as a node of its full shape."""
    if isinstance(value, Node):
        return value
    params = {"shape": value.shape, "broadcast_dimensions": tuple(range(len(value.shape))), "sharding": None}
    base = DifferentiablePrimitiveNodeOp if value.node.value_type.is_float else PrimitiveNodeOp
    return apply_primitive(broadcast_in_dim_p, [value.node], params, base)[0]


class Walk:
    """One translation of a function into nodes of a graph."""

    def __init__(self, graph: ExpressionGraph, rules: Mapping[str, Rule], wide_calls: WideCalls) -> None:
        self.graph, self.rules, self.wide_calls = graph, rules, wide_calls
        self.around: list[core.JaxprEqn] = []
        """The equations that are being translated, each within the one before."""
        self._constants: dict[tuple[Any, ...], Node] = {}

    def constant(self, value: np.ndarray) -> Node:
        """A constant of the graph; equal arrays in one function share a node."""
        key = (str(value.dtype), value.shape, value.tobytes())
        if key not in self._constants:
            made = self.graph.constant(value.shape, inits.from_tensor(value), as_type(value.dtype))
            self._constants[key] = made
        return self._constants[key]

    def run(self, jaxpr: core.Jaxpr, consts: Sequence[Any], values: Sequence[Any]) -> list[Value]:
        """The results of a function on values."""
        known: dict[Any, Any] = dict(zip(jaxpr.invars, values, strict=True))
        for held in consts:
            refuse_traced("from_jax of a function that closes over a value", held)
            if holds_keys(held):
                raise UnsupportedPrimitiveError(
                    f"from_jax: the function closes over a random key, {described(held)}, which has no "
                    f"meaning in a graph{here()}"
                )
        known.update(zip(jaxpr.constvars, [np.asarray(c) for c in consts], strict=True))

        def read(atom: Any) -> Any:
            if not isinstance(atom, core.Literal):
                return known[atom]
            return np.asarray(atom.val, getattr(atom.aval, "dtype", None))

        for source in _needed(jaxpr):
            equation = Equation(self, source, [read(atom) for atom in source.invars])
            known.update(zip(source.outvars, self._results(equation), strict=True))
        return [self._value(read(atom)) for atom in jaxpr.outvars]

    def inline(self, closed: Any, values: Sequence[Any]) -> list[Value]:
        """The results of an inner function."""
        return self.run(closed.jaxpr, closed.consts, values)

    def _value(self, value: Value | np.ndarray) -> Value:
        return self.constant(value) if isinstance(value, np.ndarray) else value

    def _results(self, equation: Equation) -> list[Value]:
        name = equation.primitive.name
        rule = self.rules.get(name)
        if rule is None:
            raise UnsupportedPrimitiveError(
                f"from_jax: the primitive {name!r} of the function's line {equation.where()} cannot be a "
                f"node{here()}"
            )
        for aval in equation.outs:
            _check_type(equation, aval)
        self.around.append(equation.source)
        result = rule(equation)
        self.around.pop()
        results = [result] if isinstance(result, Node | Spread) else result
        return [_fitted(v, tuple(aval.shape)) for v, aval in zip(results, equation.outs, strict=True)]


def _needed(jaxpr: core.Jaxpr) -> list[core.JaxprEqn]:
    """The equations that the results depend on, and those with side effects."""
    wanted = {atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal)}
    kept = []
    for source in reversed(jaxpr.eqns):
        if source.effects or not wanted.isdisjoint(source.outvars):
            kept.append(source)
            wanted.update(atom for atom in source.invars if not isinstance(atom, core.Literal))
    return kept[::-1]


def _check_type(equation: Equation, aval: Any) -> None:
    try:
        as_type(aval.dtype)
    except ElementTypeError:
        raise UnsupportedPrimitiveError(
            f"from_jax: the primitive {equation.primitive.name!r} of the function's line {equation.where()} "
            f"gives {aval.dtype}, which is not an element type of a graph{here()}"
        ) from None


def _fitted(value: Value, shape: Shape) -> Value:
    node = value.node if isinstance(value, Spread) else value
    return node if node.shape == shape else Spread(node, shape)
