"""``Twin``: an operator on inputs that take a while, and its equivalent in jax.numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import mgraph
from mgraph import ExpressionGraph
from mgraph.cases import Case

TOLERANCE = 2e-3
"""For results in float32, as a fraction of their largest number; in 16 bits, ten times that."""

Function = Callable[..., Any]


class Twin(NamedTuple):
    """A row of the benchmark."""

    name: str
    """The operator's, as the catalogue has it."""
    case: Case
    """Shapes of the inputs and where their values come from."""
    ours: Function
    """The operator, on nodes."""
    plain: Function
    """Its equivalent, on arrays."""
    note: str = ""
    """Which of the operator's uses this is, where there are several rows."""
    gradient: bool = True
    """Whether it has a gradient."""
    random: bool = False
    """Whether it is random: ``plain`` then takes a key as well, and the results are not compared."""

    def __str__(self) -> str:
        return f"{self.name}, {self.note}" if self.note else self.name

    def inputs(self) -> list[jax.Array]:
        """The values of the inputs; float32, int8, or uint32 for indices."""
        return [jnp.asarray(v.astype(np.float32) if v.dtype == float else v) for v in self.case.values()]


class Pair(NamedTuple):
    """The same computation twice, as compiled programs without arguments."""

    ours: Callable[[], Any]
    plain: Callable[[], Any]


def forward(twin: Twin) -> Pair:
    """The operator's value. ``ValueError`` if the two differ."""
    arguments = _arguments(twin)
    return _pair(twin, _outputs_of(recorded(twin)), _outputs_of(twin.plain), arguments)


def backward(twin: Twin) -> Pair:
    """The gradients by all inputs that have one, given the adjoint of the (first) output."""
    arguments = _arguments(twin)
    shape = jax.eval_shape(_outputs_of(twin.plain), *arguments)[0]
    adjoint = jnp.asarray(np.random.default_rng(1).standard_normal(shape.shape), shape.dtype)
    arguments = [*arguments, adjoint]
    return _pair(twin, _gradients_of(recorded(twin), twin), _gradients_of(twin.plain, twin), arguments)


def recorded(twin: Twin) -> Function:
    """The operator as a pure function of arrays, with its hand-written rule."""
    graph = ExpressionGraph()
    values = twin.case.values()
    leaves = [
        graph.input(f"x{i}", v.shape, "float32" if v.dtype == float else v.dtype)
        for i, v in enumerate(values)
    ]
    found = twin.ours(*leaves)
    function = graph.function(found if isinstance(found, mgraph.Node) else list(found), leaves)

    def ours(*arguments: Any) -> Any:
        key = arguments[-1] if twin.random else None
        return function.pure({}, arguments[: len(values)], key)

    return ours


def _arguments(twin: Twin) -> list[Any]:
    return [*twin.inputs(), *([jax.random.key(0)] if twin.random else [])]


def _outputs_of(function: Function) -> Function:
    def outputs(*arguments: Any) -> tuple[Any, ...]:
        found = function(*arguments)
        return tuple(found) if isinstance(found, tuple | list) else (found,)

    return outputs


def _gradients_of(function: Function, twin: Twin) -> Function:
    outputs = _outputs_of(function)
    floats = [i for i, v in enumerate(twin.case.values()) if v.dtype != np.uint32]

    def gradients(*arguments: Any) -> Any:
        *given, adjoint = arguments

        def first(*some: Any) -> Any:
            full = list(given)
            for i, value in zip(floats, some, strict=True):
                full[i] = value
            return outputs(*full)[0]

        return jax.vjp(first, *[given[i] for i in floats])[1](adjoint)

    return gradients


def _pair(twin: Twin, ours: Function, plain: Function, arguments: Sequence[Any]) -> Pair:
    programs = [jax.jit(f).lower(*arguments).compile() for f in (ours, plain)]
    if not twin.random:
        _compare(twin, *(program(*arguments) for program in programs))
    return Pair(*(lambda program=program: program(*arguments) for program in programs))


def _compare(twin: Twin, ours: Any, plain: Any) -> None:
    for a, b in zip(ours, plain, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"{twin}: a result of shape {a.shape}, its twin's has {b.shape}")
        found, expected = np.asarray(a, np.float64), np.asarray(b, np.float64)
        finite = np.abs(expected)[np.isfinite(expected)]
        scale = max(1e-6, float(finite.max(initial=0)))
        tolerance = TOLERANCE * (10 if a.dtype.itemsize < 4 else 1)
        if not np.allclose(found, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            worst = np.nanmax(np.abs(found - expected))
            raise ValueError(f"{twin}: differs from its twin by {worst:.3g}, of {scale:.3g}")
