"""A JAX function as the witnesses see it: as it is, and without its custom rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import ArgumentError, ElementTypeError, MGraphError, ShapeError
from ...node import Node
from ...places import here, place_of
from ...specs import is_real
from ..witnesses.contraction import Point
from .arguments import Arguments, arguments_of, described, is_key
from .custom_rules import CustomRule, calls_of_rules, faults_of_rules, reason, rule_of
from .inlined import without_rules
from .rounding import Rounding, narrowest


class TracedFunction:
    """A function of arrays at a point, with its custom rules and with the chosen ones taken out.

    It is computed in float64 if the function accepts that, else in the types of its arguments.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        title: str,
        arguments: Arguments,
        only: Sequence[str],
        cotangents: Any,
        widened: bool,
    ) -> None:
        self.title, self.arguments = title, arguments
        self._function, self._only, self._cotangents = function, only, cotangents
        self._widened = widened
        self.x64 = widened or jnp.result_type(float) == jnp.float64
        self._widest = np.dtype(np.float64 if self.x64 else np.float32)
        with jax.enable_x64(self.x64):
            own = [jnp.asarray(leaf) for leaf in arguments.leaves]
            self._types = [jnp.dtype(jnp.float64) if widened else leaf.dtype for leaf in own]
            self._shapes = [leaf.shape for leaf in own]
            self._program = jax.make_jaxpr(self._outputs)(self._specs(self._types))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the chosen leaves of ``arguments``."""
        return list(self._shapes)

    @property
    def point(self) -> list[np.ndarray]:
        """The chosen leaves of ``arguments``, in float64 or, without x64, in float32."""
        return [np.asarray(leaf).astype(self._widest) for leaf in self.arguments.leaves]

    def by_rule(self, point: Point) -> list[jax.Array]:
        """The floating point outputs, by the function as it is, or their contraction with cotangents."""
        return self._outputs(self._entered(point))

    def by_jax(self, point: Point) -> list[jax.Array]:
        """The same outputs, by the function without the chosen rules."""
        return without_rules(self._program, self._entered(point), self._chosen.__contains__)

    def _entered(self, point: Point) -> list[Any]:
        return [x.astype(t) for x, t in zip(point, self._types, strict=True)]

    def _specs(self, types: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(s, t) for s, t in zip(self._shapes, types, strict=True)]

    def _outputs(self, leaves: Sequence[Any]) -> list[jax.Array]:
        result = self._function(*self.arguments.filled(leaves, self._widened))
        outputs = jax.tree.leaves(result)
        for output in outputs:
            if isinstance(output, Node):
                raise ArgumentError(
                    f"{self.title} returned a node: give a function of nodes the nodes' shapes{here()}"
                )
            if not hasattr(output, "dtype") and not isinstance(output, bool | int | float | complex):
                raise ArgumentError(f"{self.title} must return arrays, got {type(output).__name__}{here()}")
        outputs = [jnp.asarray(output) for output in outputs if not is_key(output)]
        if any(jnp.issubdtype(output.dtype, jnp.complexfloating) for output in outputs):
            raise ElementTypeError(
                f"{self.title} returned complex numbers; return real and imaginary parts{here()}"
            )
        found = [output for output in outputs if is_real(output)]
        if not found:
            raise ArgumentError(
                f"{self.title} returned no floating point number: {described(result)}{here()}"
            )
        return found if isinstance(self._cotangents, str) else self._contracted(result)

    def _contracted(self, result: Any) -> list[jax.Array]:
        """The sum of outputs times the user's cotangents."""
        form: Any
        outputs, form = jax.tree.flatten(result)
        try:
            cotangents = form.flatten_up_to(self._cotangents)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"{self.title}: expected cotangents of the structure of the outputs, {form}, got "
                f"{jax.tree.structure(self._cotangents)}{here()}"
            ) from None
        terms = []
        for output, cotangent in zip(outputs, cotangents, strict=True):
            if cotangent is None:
                continue
            if np.shape(cotangent) != jnp.shape(output) or not is_real(jnp.asarray(output)):
                raise ShapeError(
                    f"{self.title}: a cotangent of the shape {np.shape(cotangent)} was given for an output "
                    f"{described(output)}{here()}"
                )
            terms.append(jnp.sum(output * jnp.asarray(cotangent, output.dtype)))
        if not terms:
            raise ArgumentError(f"{self.title}: every cotangent is None{here()}")
        return [sum(terms[1:], start=terms[0])]

    # -- rules

    @cached_property
    def rules(self) -> list[CustomRule]:
        """The custom rules that the function calls."""
        return list(dict.fromkeys(map(rule_of, calls_of_rules(self._program))))

    @cached_property
    def _chosen(self) -> set[CustomRule]:
        """The rules that are checked: those in ``only``; else all but JAX's own, or JAX's own if there are no
        others."""
        if self._only:
            known = {rule.name for rule in self.rules}
            for name in self._only:
                if name not in known:
                    raise ArgumentError(
                        f"{self.title} calls no custom rule {name!r}; it calls "
                        f"{', '.join(sorted(known)) or 'none'}{here()}"
                    )
            return {rule for rule in self.rules if rule.name in self._only}
        return {rule for rule in self.rules if not rule.of_jax} or set(self.rules)

    @cached_property
    def faults(self) -> list[str]:
        """What the rules return that cannot be a gradient of their functions: wrong shapes and types."""
        with jax.enable_x64(self.x64):
            return faults_of_rules(self._program)

    def described_rules(self) -> Iterator[str]:
        """Which rules are checked, and which are kept as they are."""
        checked = [str(rule) for rule in self.rules if rule in self._chosen]
        kept = [str(rule) for rule in self.rules if rule not in self._chosen]
        yield f"rules checked: {', '.join(checked)}" if checked else "no custom rules: JAX's own are judged"
        if kept:
            yield f"rules kept as they are: {', '.join(kept)}"

    # -- what can be differentiated, and in which precision

    @property
    def problem(self) -> str:
        """What is wrong with the rules before any number is compared; empty if nothing is."""
        if self.faults:
            return "; ".join(self.faults)
        if self.no_reverse and self.no_forward:
            return f"cannot be differentiated: {self.no_reverse}"
        if self.no_reverse and not self.no_jax:
            return f"no reverse mode, which the function without the rule has: {self.no_reverse}"
        return ""

    @cached_property
    def no_reverse(self) -> str:
        """Why the function has no reverse mode; empty if it has one."""
        return self._failure(lambda point: jax.grad(self._sum(self.by_rule))(point))

    @cached_property
    def no_forward(self) -> str:
        """Why the function has no forward mode; empty if it has one. A ``custom_vjp`` need not have one."""
        if any(rule.is_vjp for rule in self.rules):
            return "custom_vjp"
        return self._failure(lambda point: jax.jvp(self.by_rule, (point,), (point,)))

    @cached_property
    def no_jax(self) -> str:
        """Why JAX cannot differentiate the function without the chosen rules in reverse mode; empty if it
        can."""
        if not self._chosen:
            return "it has no custom rules"
        return self._failure(lambda point: jax.grad(self._sum(self.by_jax))(point))

    @cached_property
    def no_jax_forward(self) -> str:
        """Like ``no_jax``, in forward mode."""
        if not self._chosen:
            return "it has no custom rules"
        return self._failure(lambda point: jax.jvp(self.by_jax, (point,), (point,)))

    @cached_property
    def rounding(self) -> Rounding:
        """The rounding of the least precise type in which the function or its gradient is computed."""
        mode: Any = self.by_rule if self.no_reverse else jax.grad(self._sum(self.by_rule))
        with jax.enable_x64(self.x64):
            return narrowest(jax.make_jaxpr(mode)(self._specs([self._widest] * len(self._shapes))))

    def _sum(self, outputs: Callable[[Point], list[jax.Array]]) -> Callable[[Point], Any]:
        return lambda point: sum(jnp.sum(output.astype(point[0].dtype)) for output in outputs(point))

    def _failure(self, derivative: Callable[[Point], Any]) -> str:
        try:
            with jax.enable_x64(self.x64):
                jax.eval_shape(derivative, self._specs([self._widest] * len(self._shapes)))
        except Exception as e:  # rules and functions of others may raise anything
            return reason(e)
        return ""


def traced_function(
    function: Callable[..., Any],
    title: str,
    args: Sequence[Any],
    argnums: int | Sequence[int] | None,
    only: str | Sequence[str],
    cotangents: Any,
) -> tuple[TracedFunction, str]:
    """A function in float64 if it accepts that, else in the types of its arguments, and why not in float64.

    ``ArgumentError`` if it is not a function of these arguments.
    """
    arguments = arguments_of(function, title, args, argnums)
    names = [only] if isinstance(only, str) else list(only)
    try:
        own = TracedFunction(function, title, arguments, names, cotangents, widened=False)
    except MGraphError:
        raise
    except Exception as e:  # the user's function may raise anything
        raise ArgumentError(f"{title} raised {reason(e)}\n  at {place_of(e)}{_static_hint(e)}") from None
    if own.faults or (own.no_reverse and own.no_forward):
        return own, ""
    try:
        wide = TracedFunction(function, title, arguments, names, cotangents, widened=True)
    except Exception as e:
        return own, reason(e)
    if wide.no_reverse != own.no_reverse:
        return own, wide.no_reverse
    if wide.faults:  # a rule casts to a type of its own
        return own, "; ".join(wide.faults)
    return wide, ""


def _static_hint(e: BaseException) -> str:
    if not isinstance(e, jax.errors.JAXTypeError):
        return ""
    return "\n  arguments that the function does not use as arrays: leave them out of argnums"
