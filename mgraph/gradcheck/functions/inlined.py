"""A JAX function without its custom rules: what JAX differentiates by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ...bridges.calls import as_function, closed, opened, programs_in, read_by
from ..references.numpy_witness import CALLS
from .custom_rules import CustomRule, calls_of_rules, is_rule, rule_of, spec_of_variable

Chosen = Callable[[CustomRule], bool]


def without_rules(program: Any, args: Sequence[Any], chosen: Chosen) -> list[Any]:
    """The results of a program without its chosen rules: JAX sees what the functions themselves compute.

    ``jax.jit``, ``jax.checkpoint`` and other calls around a chosen rule are inlined; loops and branches stay.
    """
    whole = closed(program)
    if not _has(program, chosen):
        results: list[Any] = core.jaxpr_as_fun(whole)(*args)
        return results
    values: dict[Any, Any] = dict(zip(whole.jaxpr.constvars, whole.consts, strict=True))
    values.update(zip(whole.jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        if not isinstance(atom, core.Literal):
            return values[atom]
        return np.asarray(atom.val, getattr(atom.aval, "dtype", None))

    for equation in whole.jaxpr.eqns:
        name = equation.primitive.name
        inside = any(_has(inner, chosen) for inner in programs_in(equation.params.values()))
        if is_rule(equation):
            inside = chosen(rule_of(equation))
        if inside and name in CALLS:
            operands = [read(v) for v in equation.invars]
            found = without_rules(equation.params[CALLS[name]], operands, chosen)
        else:
            equation = _rewritten(equation, chosen) if inside else equation
            found = as_function(equation, whole.jaxpr.debug_info)(*(values[v] for v in read_by(equation)))
        values.update(zip(equation.outvars, found, strict=True))
    return [read(v) for v in whole.jaxpr.outvars]


def _has(program: Any, chosen: Chosen) -> bool:
    return any(chosen(rule_of(call)) for call in calls_of_rules(program))


def _rewritten(equation: core.JaxprEqn, chosen: Chosen) -> core.JaxprEqn:
    """The equation of a loop or a branch, without the chosen rules in its programs."""

    def rewritten(value: Any) -> Any:
        if isinstance(value, tuple | list):
            parts = [rewritten(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return _without(value, chosen) if hasattr(value, "eqns") and _has(value, chosen) else value

    return equation.replace(params={name: rewritten(value) for name, value in equation.params.items()})


def _without(program: Any, chosen: Chosen) -> Any:
    specs = map(spec_of_variable, opened(program).invars)
    made = jax.make_jaxpr(lambda *args: without_rules(program, args, chosen))(*specs)
    if hasattr(program, "jaxpr"):
        return made
    if made.consts:
        raise NotImplementedError("a program that holds arrays in a place where JAX allows none")
    return made.jaxpr
