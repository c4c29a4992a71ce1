"""JAX programs computed by NumPy: a witness without a compiler, or one without rounding.

A program is interpreted one primitive at a time. What is traced is trusted; what XLA makes of it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal

from ...bridges.calls import parts_of_scan
from .numpy_primitives import ELEMENTWISE, OTHERS, Array, NoReferenceError, Primitive


class Arithmetic(NamedTuple):
    """How numbers are held, and how primitives compute with them.

    ``held(value, dtype)`` is the array that holds a value that has this dtype in the program.
    """

    elementwise: Mapping[str, Primitive]
    others: Mapping[str, Primitive]
    held: Callable[[Any, Any], Array]


IN_FLOATING_POINT = Arithmetic(ELEMENTWISE, OTHERS, np.asarray)


def computed_by_numpy(function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``, a JAX function of pytrees of arrays, computed by NumPy alone.

    ``NoReferenceError`` names a primitive that has no counterpart here.
    """
    program, specs = jax.make_jaxpr(function, return_shape=True)(*args)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(args)]
    with np.errstate(all="ignore"):
        found = interpreted(program, leaves, IN_FLOATING_POINT)
    return jax.tree.unflatten(jax.tree.structure(specs), found)


def interpreted(program: Any, args: Sequence[Any], arithmetic: Arithmetic) -> list[Any]:
    """The results of a program, an open or a closed jaxpr, as ``arithmetic`` holds them."""
    jaxpr, constants = (program.jaxpr, program.consts) if hasattr(program, "jaxpr") else (program, ())
    known: Any = zip(jaxpr.constvars, constants, strict=True)
    values: dict[Any, Any] = {v: arithmetic.held(c, v.aval.dtype) for v, c in known}
    values.update(zip(jaxpr.invars, args, strict=True))
    kept = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    last = {v: i for i, e in enumerate(jaxpr.eqns) for v in e.invars if not isinstance(v, Literal)}
    done: dict[int, list[Any]] = {}
    for v, i in last.items():
        if v not in kept:
            done.setdefault(i, []).append(v)

    def read(v: Any) -> Any:
        return _literal(v, arithmetic) if isinstance(v, Literal) else values[v]

    for i, equation in enumerate(jaxpr.eqns):
        found = _computed(equation, [read(v) for v in equation.invars], arithmetic)
        values.update(zip(equation.outvars, found, strict=True))
        for v in done.get(i, ()):
            del values[v]
    return [read(v) for v in jaxpr.outvars]


def _literal(v: Any, arithmetic: Arithmetic) -> Array:
    return arithmetic.held(v.val, v.aval.dtype)


def _computed(equation: Any, args: list[Any], arithmetic: Arithmetic) -> list[Array]:
    name, out = equation.primitive.name, equation.outvars[0].aval if equation.outvars else None
    if name in CALLS:
        found = interpreted(equation.params[CALLS[name]], args, arithmetic)
    elif name in arithmetic.elementwise:
        found = [arithmetic.elementwise[name](*args)]
    elif name in _CONTROL:
        specs = [v.aval for v in equation.outvars]
        found = _CONTROL[name](arithmetic, specs, *args, **equation.params)
    elif name in arithmetic.others:
        result = arithmetic.others[name](out, *args, **equation.params)
        found = list(result) if isinstance(result, list | tuple) else [result]
    else:
        raise NoReferenceError(name)
    return [arithmetic.held(a, v.aval.dtype) for a, v in zip(found, equation.outvars, strict=True)]


CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat2", "checkpoint"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
"""Primitives that are programs, and the parameter that holds each."""


def _cond(
    arithmetic: Arithmetic, _: Any, which: Array, *args: Any, branches: Sequence[Any], **__: Any
) -> list[Array]:
    return interpreted(branches[min(max(0, int(which)), len(branches) - 1)], args, arithmetic)


def _scan(
    arithmetic: Arithmetic,
    outs: Sequence[Any],
    *args: Array,
    jaxpr: Any,
    length: int,
    reverse: bool,
    **_: Any,
) -> list[Array]:
    first, carried = parts_of_scan(jaxpr, args, outs)
    last = first + carried
    constants, state, steps = args[:first], list(args[first:last]), args[last:]
    rows: list[list[Array]] = []
    for i in range(length):
        at = length - 1 - i if reverse else i
        row = [np.asarray(s[at]) for s in steps]
        found = interpreted(jaxpr, [*constants, *state, *row], arithmetic)
        state = found[:carried]
        rows.append(found[carried:])
    stacked = [np.stack(column) for column in zip(*(rows[::-1] if reverse else rows), strict=True)]
    return [*state, *stacked]


def _while(
    arithmetic: Arithmetic,
    _: Any,
    *args: Array,
    cond_jaxpr: Any,
    body_jaxpr: Any,
    cond_nconsts: int,
    body_nconsts: int,
    **__: Any,
) -> list[Array]:
    asked, constants = args[:cond_nconsts], args[cond_nconsts : cond_nconsts + body_nconsts]
    state = list(args[cond_nconsts + body_nconsts :])
    while True:
        going = interpreted(cond_jaxpr, [*asked, *state], arithmetic)[0]
        if going.ndim:
            raise NoReferenceError("while with a condition for each row")
        if not going:
            return state
        state = interpreted(body_jaxpr, [*constants, *state], arithmetic)


_CONTROL: dict[str, Primitive] = {"cond": _cond, "scan": _scan, "while": _while}
"""Primitives that run programs: functions of an arithmetic, the specs of the results, the operands and the
parameters."""
