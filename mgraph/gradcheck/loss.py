"""``check_loss``: the gradient of a whole loss with respect to all parameters, by rules and by JAX.

The two gradients of each parameter are compared twice. In float64 they must agree to 1e-10 of the gradient's
largest element: only a wrong rule can differ by more. In float32 they must agree to 1e-5, which shows whether
the rule is computed as accurately as JAX's derivative. All four share the forward and the parameters.

Rounding is not the rule's fault. Differences up to 1e-14 (in float64) or 1e-8 (in float32) of the largest
element of all parameters' gradients are ignored. So are, in float32, differences up to ten times the error of
JAX's own gradient, as measured against float64: where large terms cancel, float32 keeps few digits of what
is left. A gradient with no element above that 1e-14 is **zero**, such as that of the bias of an attention's
keys, to which softmax is invariant; its differences are relative to the largest element of all gradients.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import described, numbers
from ..errors import ArgumentError
from ..function import Function
from ..graph import ExpressionGraph
from ..node import Node
from ..shape import Shape
from ..structure import Structure
from ..types import Type
from .report import TOLERANCES, ParameterCheck
from .witnesses.recorded import widening

log = logging.getLogger("mgraph.gradcheck")

RESOLUTIONS: Mapping[str, float] = {"float64": 1e-14, "float32": 1e-8}
"""What counts as rounding in each type, relative to the largest element of all gradients: some 45 units in
the last place of float64, because sums whose terms cancel are off by about one unit, and a tenth of a unit of
float32."""
ROUNDING_FACTOR = 10
"""Two gradients in float32 may differ by this many times JAX's own rounding error: both have rounding errors,
and the maximum of few elements varies."""

Gradients = Mapping[str, np.ndarray]


def check_loss(
    record: Callable[[ExpressionGraph], Node],
    params: Mapping[str, Any],
    *,
    float32: bool = True,
    rule_set: str = "rules",
) -> tuple[float, tuple[ParameterCheck, ...]]:
    """The loss in float64, and a check of its gradient with respect to each of ``params``, the worst first.

    ``record`` records the loss in a graph; if it has several elements, their sum is differentiated.
    ``float32=False`` compares in float64 only. ``rule_set="marian"`` judges Marian's own formulas. Matrix
    products are computed in full float32, also on devices where JAX would round their operands.
    ``ArgumentError`` if ``record`` does not return a node of floating point numbers, or ``params`` are not
    arrays of numbers by name.
    """
    params = checked_params("check_loss", params)
    wide, narrow = _Loss(record, params, Type.float64), _Loss(record, params, Type.float32)
    loss, expected = wide.gradients("jax")
    found = {"float64": _differences(wide.gradients(rule_set)[1], expected)}
    if float32:
        by_jax = narrow.gradients("jax")[1]
        found["float32"] = _differences(narrow.gradients(rule_set)[1], by_jax)
        found["rounding"] = _differences(by_jax, expected)
    whole = max(filter(math.isfinite, map(_largest, expected.values())), default=0.0)
    checks = [
        parameter_check(
            name,
            gradient.shape,
            _largest(gradient),
            whole,
            {w: by_name[name] for w, by_name in found.items()},
            wide.rounding,
        )
        for name, gradient in expected.items()
    ]
    return loss, worst_first(checks)


def checked_params(caller: str, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """``params`` as arrays; ``ArgumentError`` of the ``caller`` unless they are arrays of numbers by name."""
    if not isinstance(params, Mapping):
        raise ArgumentError(f"{caller}: expected parameters by name, got {described(params)}")
    return {name: numbers(f"{caller}: parameter {name!r}", value) for name, value in params.items()}


def worst_first(checks: Iterable[ParameterCheck]) -> tuple[ParameterCheck, ...]:
    """The checks that failed, then the others, each group sorted by largest difference."""
    return tuple(sorted(checks, key=lambda check: (not check.ok, check.worst), reverse=True))


def parameter_check(
    name: str, shape: Shape, size: float, whole: float, absolute: Mapping[str, float], rounding: float = 0.0
) -> ParameterCheck:
    """The check of one parameter from its absolute differences.

    ``size`` is the largest element of its gradient, ``whole`` the largest of all parameters' gradients;
    ``rounding`` is the error in float64 due to constants that operators round, as in ``Widening``.
    """
    zero = size <= RESOLUTIONS["float64"] * whole
    scale = whole if zero else size

    def relative(difference: float) -> float:
        if difference == 0:
            return 0.0
        return difference / scale if 0 < scale < math.inf else math.inf

    differences = {witness: relative(difference) for witness, difference in absolute.items()}
    resolution = {kind: relative(r * whole) for kind, r in RESOLUTIONS.items()}
    off = differences.get("rounding", 0.0) if math.isfinite(absolute.get("rounding", 0.0)) else 0.0
    allowed = {
        "float64": max(0.0 if zero else TOLERANCES["float64"], resolution["float64"], rounding),
        "float32": max(TOLERANCES["float32"], ROUNDING_FACTOR * off, resolution["float32"]),
    }
    return ParameterCheck(name, shape, differences, allowed=allowed, gradient=size, zero=zero)


class _Loss:
    """The loss in one element type, as a function of its parameters."""

    def __init__(
        self, record: Callable[[ExpressionGraph], Node], params: Mapping[str, np.ndarray], kind: Type
    ) -> None:
        graph = ExpressionGraph()
        graph.set_default_element_type(kind)
        loss = record(graph)
        if not isinstance(loss, Node) or not loss.value_type.is_float:
            raise ArgumentError(
                "check_loss: expected a function that returns the node of a loss, a floating point number, "
                f"got {loss!r}"
            )
        self._kind, self._function = kind, graph.function(loss)
        self._values = {name: p.astype(kind.dtype) for name, p in params.items()}
        self.rounding = 0.0
        """As in ``Widening``."""
        if kind is Type.float64:
            self._widen()

    def _widen(self) -> None:
        own = self._function

        def gradient_of(structure: Structure) -> Any:
            return jax.make_jaxpr(_value_and_gradient(own.of_structure(structure)))(self._values)

        with jax.enable_x64(True):
            found = widening(own.structure, gradient_of)
        self._function, self.rounding = own.of_structure(found.structure), found.rounding

    def gradients(self, rule_set: str) -> tuple[float, Gradients]:
        """The loss and its gradient with respect to each parameter."""
        began = time.perf_counter()
        function = self._function.clone(derivatives=rule_set)
        with jax.enable_x64(self._kind is Type.float64), jax.default_matmul_precision("highest"):
            value, found = jax.jit(_value_and_gradient(function))(self._values)
            result = float(value), {name: np.asarray(gradient) for name, gradient in found.items()}
        log.info("%s in %s: %.1f s", rule_set, self._kind, time.perf_counter() - began)
        return result


def _value_and_gradient(function: Function[Any]) -> Callable[[Mapping[str, Any]], Any]:
    return jax.value_and_grad(lambda params: jnp.sum(function.pure(params)))


def _differences(found: Gradients, expected: Gradients) -> dict[str, float]:
    """The largest difference for each parameter; infinite where a gradient is not finite."""
    with np.errstate(invalid="ignore"):
        return {n: _largest(found[n].astype(np.float64) - gradient) for n, gradient in expected.items()}


def _largest(array: np.ndarray) -> float:
    largest = float(np.max(np.abs(array), initial=0.0))
    return largest if math.isfinite(largest) else math.inf
