"""Calls in a JAX function that stay one node: functions with their own gradient rule, ``cond``, ``while``.

JAX fixes such a function to the types that it was traced with, but gradients are checked in float64. So
``from_jax`` traces it a second time, with float64 for all other floats, and the node holds both versions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax import lax
from jax.extend import core

from ..node import NaryNodeOp, Node, NodeMeta
from .errors import BridgeError
from .primitive_node import parts

ClosedJaxpr: Any = vars(core)["ClosedJaxpr"]
"""JAX's class of a function with its constants; from version 0.12 on every ``Jaxpr`` is one."""

CUSTOM = frozenset(("custom_jvp_call", "custom_vjp_call"))
KEPT = CUSTOM | {"cond", "while"}
"""Primitives whose functions stay one node."""


def read_by(source: core.JaxprEqn) -> list[Any]:
    """The variables that an equation reads, each once."""
    return list(dict.fromkeys(v for v in source.invars if not isinstance(v, core.Literal)))


def as_function(source: core.JaxprEqn, info: Any) -> Callable[..., list[Any]]:
    """An equation as a function of the variables that it reads; ``info`` says where it comes from."""
    alone = core.Jaxpr((), read_by(source), source.outvars, [source], debug_info=info.with_unknown_names())
    run: Callable[..., list[Any]] = core.jaxpr_as_fun(ClosedJaxpr(alone, ()))
    return run


def opened(program: Any) -> Any:
    """A program without its constants."""
    return getattr(program, "jaxpr", program)


def closed(program: Any) -> Any:
    """A program with its constants; an open one has none."""
    return program if hasattr(program, "jaxpr") else ClosedJaxpr(program, ())


def programs_in(values: Any) -> Iterator[Any]:
    """The programs among the parameters of an equation."""
    for value in values:
        if hasattr(value, "eqns"):
            yield value
        elif isinstance(value, tuple | list):
            yield from programs_in(value)


def parts_of_scan(body: Any, operands: Sequence[Any], results: Sequence[Any]) -> tuple[int, int]:
    """How many operands of a ``scan`` over arrays or specs are constants, and how many after them are the
    first state. Neither has a time axis. Each version of JAX stores these numbers differently."""
    carried = _alike(results, body.out_avals)
    return _alike(operands, body.in_avals) - carried, carried


def _alike(outside: Sequence[Any], of_a_step: Sequence[Any]) -> int:
    return sum(len(a.shape) == len(b.shape) for a, b in zip(outside, of_a_step, strict=True))


class Call:
    """A call that stays one node, which holds it as a field; equal to the same call of the same trace.

    wide: the same call in the trace with float64, if there is one.
    """

    __slots__ = ("_key", "_own", "_results", "_wide", "name")

    def __init__(self, source: core.JaxprEqn, wide: core.JaxprEqn | None) -> None:
        programs = tuple(programs_in(source.params.values()))
        info = opened(programs[0]).debug_info
        self._own = _with_types(source, info)
        self._wide = _with_types(wide, info) if wide else None
        self._results = _types_of(source.outvars)
        is_custom = source.primitive.name in CUSTOM
        self.name = (is_custom and info.func_src_info) or source.primitive.name
        self._key = programs, tuple(map(repr, source.invars))

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """The results for the values of the variables that the call reads."""
        run, types = self._own
        if not any(v.dtype == np.float64 != t for v, t in zip(values, types, strict=True)):
            return tuple(run(*values))
        if self._wide is None:
            raise BridgeError(
                f"from_jax: expected {self.name} to take float64, in which gradients are checked; in float64 "
                "the function raises an error or takes other steps: call it with float64 nodes to see which"
            )
        run, types = self._wide
        results = run(*map(lax.convert_element_type, values, types))
        return tuple(
            r if r.dtype == np.float64 else lax.convert_element_type(r, t)
            for r, t in zip(results, self._results, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return self.name


def _with_types(source: core.JaxprEqn, info: Any) -> tuple[Callable[..., list[Any]], list[np.dtype]]:
    """``as_function``, and the types of its arguments."""
    return as_function(source, info), _types_of(read_by(source))


def _types_of(variables: Sequence[Any]) -> list[np.dtype]:
    return [variable.aval.dtype for variable in variables]


class CallNodeOp(NaryNodeOp):
    """Base of the nodes of calls."""

    mixed_types = True
    call: Call

    def forward_ops(self, *values: Any) -> Any:
        return self.call(*values)


class CustomRuleNodeOp(CallNodeOp):
    """A call of a ``jax.custom_jvp`` or ``jax.custom_vjp`` function, with the rule that came with it.

    Its gradient follows that rule under every rule set.
    """

    type = "custom_rule"
    composite = True
    gradient_is_derivative = False


class ControlFlowNodeOp(CallNodeOp):
    """Base of ``cond`` and ``while`` without a gradient, for integers and truth values.

    Each of the two has a subclass, made on first use; its ``type`` is the primitive's name.
    """

    type = "control_flow"
    differentiable = False


class DifferentiableControlFlowNodeOp(ControlFlowNodeOp):
    """``cond`` and ``while`` with a gradient, which is JAX's under any rule set."""

    composite = True


@functools.cache
def _class_of(name: str, base: type[ControlFlowNodeOp]) -> Any:
    return NodeMeta(f"{name.capitalize()}NodeOp", (base,), {"type": name, "__module__": __name__})


def apply_call(call: Call, source: core.JaxprEqn, children: list[Node], real: bool) -> list[Node]:
    """The results of a call as nodes. ``real``: whether they have gradients."""
    if source.primitive.name in CUSTOM:
        return parts(CustomRuleNodeOp(*children, call=call))
    base = DifferentiableControlFlowNodeOp if real else ControlFlowNodeOp
    return parts(_class_of(source.primitive.name, base)(*children, call=call))


class WideCalls:
    """For each call of a program that stays one node, the same call of the function traced with float64.

    retrace: makes that trace; called at most once, for the first such call. ``None`` if the program has
        float64 already.
    """

    def __init__(self, program: Any, retrace: Callable[[], Any] | None) -> None:
        self._program, self._retrace = program, retrace

    def of(self, source: core.JaxprEqn) -> core.JaxprEqn | None:
        return self._pairs.get(id(source))

    @functools.cached_property
    def _pairs(self) -> dict[int, core.JaxprEqn]:
        if self._retrace is None:
            return {}
        try:
            program = self._retrace()
        except Exception:  # whatever the user's function raises if it does not take float64
            return {}
        own, others = list(_kept_calls(self._program)), list(_kept_calls(program))
        if list(map(_form, own)) != list(map(_form, others)):
            return {}
        return {id(a): b for a, b in zip(own, others, strict=True)}


def _kept_calls(program: Any) -> Iterator[core.JaxprEqn]:
    for equation in opened(program).eqns:
        if equation.primitive.name in KEPT:
            yield equation
        else:
            for inner in programs_in(equation.params.values()):
                yield from _kept_calls(inner)


def _form(source: core.JaxprEqn) -> Any:
    """What a call and its float64 version have in common: everything except types."""
    read, variables = read_by(source), [*source.invars, *source.outvars]
    operands = [None if isinstance(v, core.Literal) else read.index(v) for v in source.invars]
    return source.primitive.name, operands, [getattr(v.aval, "shape", None) for v in variables]
