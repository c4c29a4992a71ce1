"""Primitives that hold functions: calls, loops, branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..node import Node
from ..ops.arithmetic import logaddexp
from ..ops.elementwise import relu
from ..ops.scan import scan
from .equations import JAX_FOLDER, Equation, Result, Rule, whole
from .primitive_node import ClosedJaxpr


def _inlined(name: str) -> Rule:
    """The call of a function without a rule of its own: what it consists of."""

    def rule(equation: Equation) -> Result:
        inner = equation.params[name]
        closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
        return equation.walk.inline(closed, equation.values)

    return rule


def _custom_call(equation: Equation) -> Result:
    """A function keeps the rule that it was given; for some of JAX's own there is an operator."""
    closed = equation.params["call_jaxpr"]
    name, _, file = (getattr(closed.jaxpr.debug_info, "func_src_info", None) or "").partition(" at ")
    if name in _KNOWN and file.startswith(JAX_FOLDER):
        return _KNOWN[name](equation)
    return equation.as_custom_call()


_KNOWN: dict[str, Callable[[Equation], Node]] = {
    "relu": lambda equation: relu(equation.loose(0)),
    "logaddexp": lambda equation: logaddexp(equation.loose(0), equation.loose(1)),
}
"""Operators for functions of JAX's own that have a rule of their own."""


def _scan(equation: Equation) -> Result:
    params = equation.params
    body = params["jaxpr"]
    operands = [equation.aval(i) for i in range(len(equation.values))]
    carried, sequences = _alike(equation.outs, body.out_avals), _stacked(operands, body.in_avals)
    nodes = equation.all_nodes()
    consts = len(nodes) - carried - sequences
    outside, first, xs = nodes[:consts], nodes[consts : consts + carried], nodes[consts + carried :]
    # A loop without a sequence runs over one that nobody looks at.
    counted = xs or [equation.walk.constant(np.zeros(params["length"], np.int32))]

    def step(state: tuple[Node, ...], given: tuple[Node, ...]) -> tuple[Any, Any]:
        results = [whole(v) for v in equation.walk.inline(body, [*outside, *state, *given[: len(xs)]])]
        return tuple(results[:carried]), tuple(results[carried:])

    last, stacked = scan(
        step, tuple(first), tuple(counted), reverse=params["reverse"], unroll=int(params["unroll"])
    )
    return [*last, *stacked]


def _stacked(avals: Sequence[Any], of_a_step: Sequence[Any]) -> int:
    """How many of them have an axis of time besides those that they have in a step. JAX says it in other
    words in each version."""
    return len(avals) - _alike(avals, of_a_step)


def _alike(avals: Sequence[Any], of_a_step: Sequence[Any]) -> int:
    return sum(len(a.shape) == len(b.shape) for a, b in zip(avals, of_a_step, strict=True))


def _own_node(equation: Equation) -> Result:
    return equation.as_primitive(equation.all_nodes())


CALLS: dict[str, Rule] = {
    "jit": _inlined("jaxpr"),
    "pjit": _inlined("jaxpr"),
    "closed_call": _inlined("call_jaxpr"),
    "core_call": _inlined("call_jaxpr"),
    "remat": _inlined("jaxpr"),
    "remat2": _inlined("jaxpr"),
    "checkpoint": _inlined("jaxpr"),
    "composite": _inlined("jaxpr"),
    "custom_jvp_call": _custom_call,
    "custom_vjp_call": _custom_call,
    "scan": _scan,
    "call_hi_primitive": _own_node,
    "cond": _own_node,
    "while": _own_node,
}
"""The rules of primitives that hold functions, by name."""

WITHOUT_RULES: dict[str, Rule] = {
    "custom_jvp_call": _inlined("call_jaxpr"),
    "custom_vjp_call": _inlined("call_jaxpr"),
}
"""For values alone, functions with a rule of their own are what they consist of."""
