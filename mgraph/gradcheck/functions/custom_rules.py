"""The custom rules that a JAX function calls, and the faults in their results that JAX lets pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ...bridges.calls import as_function, opened, programs_in, read_by
from ...bridges.equations import JAX_FOLDER
from ...specs import is_real
from ..references.numpy_witness import CALLS

_CUSTOM_GRADIENT = "custom_derivatives.py"
"""The file of JAX in which ``jax.custom_gradient`` turns a user's function into a rule."""


@dataclass(frozen=True)
class CustomRule:
    """A function with ``jax.custom_vjp`` or ``jax.custom_jvp``, as found in a program."""

    name: str
    file: str
    line: int
    is_vjp: bool

    @property
    def of_jax(self) -> bool:
        """Whether the function is JAX's own, such as ``jax.nn.relu``."""
        return self.file.startswith(JAX_FOLDER) and not self._is_custom_gradient

    @property
    def _is_custom_gradient(self) -> bool:
        return self.file.startswith(JAX_FOLDER) and Path(self.file).name == _CUSTOM_GRADIENT

    def __str__(self) -> str:
        if self._is_custom_gradient:
            return f"{self.name} (jax.custom_gradient)"
        return f"{self.name} ({'jax' if self.of_jax else f'{Path(self.file).name}:{self.line}'})"


def is_rule(equation: core.JaxprEqn) -> bool:
    """Whether an equation calls a function with a custom rule."""
    return equation.primitive.name.startswith(("custom_jvp_call", "custom_vjp_call"))


def rule_of(equation: core.JaxprEqn) -> CustomRule:
    """The rule that an equation calls."""
    info, is_vjp = _info(equation), "vjp" in equation.primitive.name
    return CustomRule(info.func_name, info.func_filename or "", info.func_lineno or 0, is_vjp)


def _info(equation: core.JaxprEqn) -> Any:
    """What JAX knows about the function that a rule belongs to."""
    return opened(equation.params[CALLS[equation.primitive.name]]).debug_info


def calls_of_rules(program: Any) -> Iterator[core.JaxprEqn]:
    """Every call of a function with a custom rule in a program, at any depth."""
    for equation in opened(program).eqns:
        if is_rule(equation):
            yield equation
        for inner in programs_in(equation.params.values()):
            yield from calls_of_rules(inner)


def spec_of_variable(variable: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of a variable of a program."""
    aval = variable.aval
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def faults_of_rules(program: Any) -> list[str]:
    """Wrong shapes and types that rules of ``jax.custom_vjp`` return; JAX lets many of them pass."""
    found: dict[str, None] = {}
    for call in calls_of_rules(program):
        rule = rule_of(call)
        if rule.is_vjp:
            found.update(dict.fromkeys(f"{rule}: {fault}" for fault in _faults(call)))
    return list(found)


def _faults(call: core.JaxprEqn) -> Iterator[str]:
    inputs, expected = read_by(call), [v.aval for v in call.outvars]
    moving = [i for i, v in enumerate(inputs) if is_real(v.aval)]
    run = as_function(call, _info(call))
    if not moving:
        return

    def differentiated(values: list[Any]) -> tuple[Any, Any]:
        def outputs(chosen: list[Any]) -> Any:
            every = list(values)
            for i, value in zip(moving, chosen, strict=True):
                every[i] = value
            return run(*every)

        results, pull = jax.vjp(outputs, [values[i] for i in moving])
        return results, pull([_one_like(result) for result in results])[0]

    try:
        results, gradients = jax.eval_shape(differentiated, [spec_of_variable(v) for v in inputs])
    except Exception as e:  # the derivative of the whole function fails, too, and says why
        if str(e).startswith("Custom VJP"):
            yield reason(e)
        return
    for result, value in zip(results, expected, strict=True):
        if _kind(result) != _kind(value):
            yield f"under differentiation it returns {_kind(result)} instead of {_kind(value)}"
    for gradient, i in zip(gradients, moving, strict=True):
        if _kind(gradient) != _kind(inputs[i].aval):
            yield f"it gives a gradient {_kind(gradient)} by an input {_kind(inputs[i].aval)}"


def reason(e: BaseException) -> str:
    """An exception in one line: JAX's messages about rules in full, others cut to their first line."""
    text = str(e).strip()
    if not text.startswith("Custom"):
        text = text.partition("\n")[0]
    return f"{type(e).__name__}: {' '.join(text.split())}"


def _one_like(value: Any) -> Any:
    return jnp.ones_like(value) if is_real(value) else np.zeros(value.shape, jax.dtypes.float0)


def _kind(value: Any) -> str:
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"
