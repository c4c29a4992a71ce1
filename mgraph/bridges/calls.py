"""Primitives that hold functions: calls, loops, branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend import core

from ..node import Node
from ..ops.arithmetic import logaddexp
from ..ops.elementwise import relu
from ..ops.scan import scan
from .equations import JAX_FOLDER, Equation, Result, Rule, whole


def _inlined(name: str) -> Rule:
    """The call of a function without a rule of its own: what it consists of."""

    def rule(equation: Equation) -> Result:
        inner = equation.params[name]
        closed = inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())
        return equation.walk.inline(closed, equation.values)

    return rule


def _custom_call(equation: Equation) -> Result:
    """A function keeps the rule that it was given; for some of JAX's own there is an operator."""
    closed: core.ClosedJaxpr = equation.params["call_jaxpr"]
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
    consts, carried, body = params["num_consts"], params["num_carry"], params["jaxpr"]
    nodes = equation.all_nodes()
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
    "cond": _own_node,
    "while": _own_node,
}
"""The rules of primitives that hold functions, by name."""

WITHOUT_RULES: dict[str, Rule] = {
    "custom_jvp_call": _inlined("call_jaxpr"),
    "custom_vjp_call": _inlined("call_jaxpr"),
}
"""For values alone, functions with a rule of their own are what they consist of."""
