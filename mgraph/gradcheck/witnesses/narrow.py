"""Programs that compute in less precision than float64, whatever they get, and their float64 versions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from ...bridges.calls import closed, opened, parts_of_scan, programs_in
from ...bridges.primitive_node import IMPLIED, applied
from ...specs import is_real
from ..references.numpy_primitives import NoReferenceError
from ..references.numpy_witness import CALLS

_MOST_NUMBERS = 4096
"""Constants of more elements keep their rounding to the narrow type."""
_DIGITS = 9
"""This many digits distinguish all numbers of float32."""


def narrowest_type(program: Any) -> Any:
    """The least precise floating point type in which a program computes anything that depends on its inputs;
    float64 if there is none."""
    inputs = opened(program).invars
    found = {v.aval.dtype for v in inputs if is_real(v.aval)}
    _collect(program, [True] * len(inputs), found)
    return max(found, key=lambda dtype: float(jnp.finfo(dtype).eps), default=np.dtype(np.float64))


def narrow_type(program: Any) -> Any:
    """The ``narrowest_type``, or ``None`` if that is float64."""
    dtype = narrowest_type(program)
    return dtype if is_narrow_type(dtype) else None


def _collect(program: Any, moving: Sequence[bool], found: set[Any]) -> None:
    """Add the floating point types of everything that depends on the ``moving`` inputs of a program."""
    known = {v for v, moves in zip(opened(program).invars, moving, strict=True) if moves}
    for equation in opened(program).eqns:
        reads = [not isinstance(v, core.Literal) and v in known for v in equation.invars]
        if not any(reads):
            continue
        for inner in programs_in(equation.params.values()):
            inputs = opened(inner).invars
            same = equation.primitive.name in CALLS and len(inputs) == len(reads)
            # A loop's state may come to depend on the inputs in a later step. A value of a type that is not
            # in ``found`` does so only after an equation has computed one of that type from them.
            _collect(inner, reads if same else [_type(v) in found for v in inputs], found)
        found |= {_type(v) for v in equation.outvars if _type(v) is not None and is_real(v.aval)}
        known.update(equation.outvars)


def _type(variable: Any) -> Any:
    return getattr(variable.aval, "dtype", None)


def has_rounded(program: Any) -> bool:
    """Whether a program has a constant that its narrow type rounds, such as 0.1 but not 0.5."""
    jaxpr = opened(program)
    literals = (v for equation in jaxpr.eqns for v in equation.invars if isinstance(v, core.Literal))
    numbers = [*(np.asarray(v.val, _type(v)) for v in literals), *getattr(program, "consts", ())]
    inner = (p for equation in jaxpr.eqns for p in programs_in(equation.params.values()))
    return any(map(_is_rounded, numbers)) or any(map(has_rounded, inner))


def _is_rounded(value: Any) -> bool:
    if not is_narrow_type(value.dtype):
        return False
    exact = np.asarray(value, np.float64)
    return value.size > _MOST_NUMBERS or not np.array_equal(_widened(value), exact, equal_nan=True)


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in float64: floats in its pytrees of arrays are all float64, and casts to other floating
    point types become casts to float64.

    Large constants stay rounded as in the function; small ones get the decimals that were meant: 0.1 instead
    of the float32 number next to it. The custom rules of functions that compute in a narrow type
    are taken out. ``NoReferenceError`` names a primitive that has no counterpart in float64.
    """

    @functools.wraps(function)
    def wide(*args: Any) -> Any:
        program, specs = jax.make_jaxpr(function, return_shape=True)(*args)
        found = _computed(program, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(specs), found)

    return wide


def _computed(program: Any, args: Sequence[Any]) -> list[Any]:
    """The results of a program, a closed or an open jaxpr, in float64."""
    whole = closed(program)
    if not _is_narrow(whole):
        results: list[Any] = core.jaxpr_as_fun(whole)(*args)
        return results
    values: dict[Any, Any] = dict(zip(whole.jaxpr.constvars, map(_widened, whole.consts), strict=True))
    values.update(zip(whole.jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        if isinstance(atom, core.Literal):
            return _widened(np.asarray(atom.val, _type(atom)))
        return values[atom]

    for equation in whole.jaxpr.eqns:
        found = _result(equation, [read(v) for v in equation.invars])
        values.update(zip(equation.outvars, found, strict=True))
    return [read(v) for v in whole.jaxpr.outvars]


def _is_narrow(program: Any) -> bool:
    """Whether a program has floats of another type than float64."""
    return any(
        _is_narrow_equation(equation) or any(map(_is_narrow, programs_in(equation.params.values())))
        for equation in opened(program).eqns
    )


def _is_narrow_equation(equation: core.JaxprEqn) -> bool:
    return any(is_narrow_type(_type(v)) for v in (*equation.invars, *equation.outvars))


def is_narrow_type(dtype: Any) -> bool:
    """Whether a value is the dtype of a floating point type other than float64."""
    return isinstance(dtype, np.dtype) and jnp.issubdtype(dtype, jnp.floating) and dtype != np.float64


def _widened(value: Any) -> Any:
    """A constant in float64, if it is of a floating point type."""
    if not is_narrow_type(value.dtype):
        return value
    if isinstance(value, jax.core.Tracer) or value.size > _MOST_NUMBERS:
        return lax.convert_element_type(value, np.float64)
    return np.reshape([_decimal(number) for number in np.ravel(value)], value.shape)


def _decimal(number: Any) -> float:
    """The decimal with the fewest digits that the number's type rounds to the number."""
    exact = float(number)
    decimals = (float(f"{exact:.{digits}g}") for digits in range(1, _DIGITS + 1))
    return next((decimal for decimal in decimals if type(number)(decimal) == number), exact)


def _result(equation: core.JaxprEqn, args: Sequence[Any]) -> Sequence[Any]:
    name, params = equation.primitive.name, equation.params
    if name in CALLS:
        return _computed(params[CALLS[name]], args)
    if name in _CONTROL:
        found: Sequence[Any] = _CONTROL[name](equation, *args)
        return found
    params = {key: _wide_type(value) for key, value in params.items() if key not in IMPLIED}
    if next(programs_in(params.values()), None) or (name in _OF_BITS and _is_narrow_equation(equation)):
        raise NoReferenceError(name)
    result = applied(equation.primitive, args, params)
    return result if equation.primitive.multiple_results else [result]


_OF_BITS = frozenset(("bitcast_convert_type", "pure_callback", "io_callback", "ffi_call"))
"""Primitives that depend on how numbers are stored."""


def _wide_type(value: Any) -> Any:
    return np.dtype(np.float64) if is_narrow_type(value) else value


def _cond(equation: core.JaxprEqn, which: Any, *args: Any) -> Any:
    branches = [functools.partial(_branch, program) for program in equation.params["branches"]]
    return lax.switch(which, branches, *args)


def _branch(program: Any, *args: Any) -> list[Any]:
    return _computed(program, args)


def _while(equation: core.JaxprEqn, *args: Any) -> Any:
    params = equation.params
    asked, held = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    return lax.while_loop(
        lambda state: _computed(params["cond_jaxpr"], [*args[:asked], *state])[0],
        lambda state: _computed(params["body_jaxpr"], [*args[asked:held], *state]),
        list(args[held:]),
    )


def _scan(equation: core.JaxprEqn, *args: Any) -> Any:
    params = equation.params
    body = params["jaxpr"]
    first, carried = parts_of_scan(body, args, [v.aval for v in equation.outvars])
    last = first + carried

    def step(state: Any, given: Any) -> tuple[list[Any], list[Any]]:
        found = _computed(body, [*args[:first], *state, *given])
        return found[:carried], found[carried:]

    order: Mapping[str, Any] = {"length": params["length"], "reverse": params["reverse"]}
    state, stacked = lax.scan(step, list(args[first:last]), list(args[last:]), **order)
    return [*state, *stacked]


_CONTROL: Mapping[str, Callable[..., Any]] = {"cond": _cond, "scan": _scan, "while": _while}
