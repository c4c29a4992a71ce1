"""A recorded graph as a function of some of its leaves, in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...operators import make_operator
from ...ops.loop import Body
from ...scalars import number_vector
from ...specs import Spec, is_real, spec_of
from ...structure import Excerpt, Row, Structure, is_leaf
from ...tracing.trace import trace
from ...types import Type
from .contraction import Point, total
from .narrow import has_rounded, in_float64, narrow_type, narrowest_type

_NUMBERS = 4
"""Units in the last place of a narrow type by which constants in an operator's code may put gradients off."""


class Widening(NamedTuple):
    """A computation in float64 throughout, if possible."""

    structure: Structure
    narrow: Any = None
    """The less precise type that operators compute in although they are given float64; ``None`` for none."""
    inside: bool = False
    """Whether all operators compute in float64 here instead."""
    rounding: float = 0.0
    """How far gradients may be off, relative to the largest, because constants in the code of operators are
    rounded to that type."""


def widening(structure: Structure, gradient_of: Callable[[Structure], Any]) -> Widening:
    """A structure in which operators compute in float64 even where their code casts to a narrower type, as
    far as they can; ``inside`` says whether all do. ``gradient_of`` traces the gradient of a structure."""
    found = Widening(structure)
    with suppress(Exception):  # if it cannot be traced, the call for its gradients says why
        program = gradient_of(structure)
        found = found._replace(narrow=narrow_type(program))
        if found.narrow is None:
            return found
        inside = widened(structure, inside=True)
        whole = narrow_type(gradient_of(inside)) is None
        rounds = whole and has_rounded(program)
        rounding = _NUMBERS * float(jnp.finfo(found.narrow).eps) if rounds else 0.0
        found = Widening(inside, found.narrow, whole, rounding)
    return found


class RecordedFunction:
    """The value of the row ``output`` as a function of the ``chosen`` leaves; the others keep their values.

    It is computed in float64 throughout if possible; ``widening`` says whether.
    """

    def __init__(
        self,
        excerpt: Excerpt,
        output: int,
        chosen: Sequence[int],
        leaves: Sequence[np.ndarray],
        draw_seed: int,
    ) -> None:
        def value(structure: Structure) -> Callable[..., Any]:
            return function_of_leaves(structure, output, chosen, leaves, draw_seed)

        def gradient_of(structure: Structure) -> Any:
            def loss(point: Point) -> Any:
                found = jax.tree.leaves(value(structure)(point, "rules"))
                return total(jnp.sum(v) for v in found if is_real(v))

            return jax.make_jaxpr(jax.grad(loss))([leaves[k] for k in chosen])

        self.widening = widening(widened(excerpt.structure), gradient_of)
        self._value = value(self.widening.structure)

    def __call__(self, point: Point, rule_set: str, frozen: int | None) -> Any:
        return self._value(point, rule_set, frozen)


def check_numbers(
    excerpt: Excerpt,
    output: int,
    chosen: Sequence[int],
    leaves: Sequence[np.ndarray],
    draw_seed: int,
    rule_set: str,
) -> None:
    """Trace the gradient of a ``RecordedFunction`` as programs do, with the numbers of ``runtime_fields`` as
    arguments. Rules that need to know these numbers while they are traced raise."""
    structure, numbers = widened(excerpt.structure).generic()
    if not numbers:
        return
    computed = function_of_leaves(structure, output, chosen, leaves, draw_seed)

    def loss(point: Point, numbers: Any) -> Any:
        found = jax.tree.leaves(computed(point, rule_set, numbers=numbers))
        return total(jnp.sum(v) for v in found if is_real(v))

    jax.eval_shape(jax.grad(loss), [leaves[k] for k in chosen], number_vector(numbers, wide=True))


def function_of_leaves(
    structure: Structure, output: int, chosen: Sequence[int], leaves: Sequence[np.ndarray], draw_seed: int
) -> Callable[..., Any]:
    """The value of the row ``output`` as ``Values``, a function of the ``chosen`` leaves, in the types of the
    structure; ``numbers`` are those of a generic structure."""
    key = jax.random.key(draw_seed & 0xFFFFFFFF)

    def value(point: Point, rule_set: str, frozen: int | None = None, numbers: Any = None) -> Any:
        known: list[Any] = list(leaves)
        for k, moved in zip(chosen, point, strict=True):
            known[k] = moved
        moving = {k for i, k in enumerate(chosen) if i != frozen}
        trained = tuple(k in moving for k in range(len(known)))
        rows = trace(structure, known, numbers=numbers, rule_set=rule_set, trained=trained, key=key)
        return rows[output]

    return value


def wide(value: Any) -> np.ndarray:
    """A value as a NumPy array; in float64 if it is of a floating point type."""
    array = np.asarray(value)
    return array.astype(np.float64) if is_real(array) else array


def widened(structure: Structure, inside: bool = False) -> Structure:
    """The same computation in float64 throughout: random leaves are drawn in float64, and casts to floating
    point types, also in bodies of loops, cast to float64; with ``inside``, so do casts in the code of
    operators. Operators with a surrogate compute the surrogate."""

    def field(value: Any) -> Any:
        if isinstance(value, Type) and value.is_float:
            return Type.float64
        if isinstance(value, Body):
            return replace(value, structure=widened(value.structure, inside))
        return value

    rows = (
        _wide_leaf(row) if is_leaf(row) else (_rebuilt(row[0], field, inside), *row[1:])
        for row in structure.rows
    )
    return replace(structure, rows=tuple(rows))


def smoothed(structure: Structure) -> Structure:
    """The same computation, in which operators with a surrogate compute the surrogate."""
    rows = (row if is_leaf(row) else (_rebuilt(row[0], _smooth_field), *row[1:]) for row in structure.rows)
    return replace(structure, rows=tuple(rows))


def _wide_leaf(row: Row) -> Row:
    """A leaf, drawn in float64 if it is a random one of a floating point type."""
    head, spec, *rest = row
    if isinstance(spec, Spec) and spec.type.is_float:
        spec = spec_of(spec.shape, Type.float64)
    return head, spec, *rest


def _rebuilt(operator: Any, converted: Callable[[Any], Any], inside: bool = False) -> Any:
    """The operator with converted fields, and with its surrogate as forward; ``inside`` as in ``widened``."""
    own: Any = type(operator)
    cls = _smooth(own)
    fields = {name: converted(getattr(operator, name)) for name in operator.fields}
    return make_operator(_wide_inside(cls) if inside else cls, fields)


@functools.cache
def _smooth(cls: Any) -> Any:
    """The class of an operator; if it has a surrogate, a subclass with that as forward and the same rule."""
    if cls.surrogate_ops is None:
        return cls
    return type(cls)(cls.__name__, (cls,), {"forward_ops": cls.surrogate_ops, "__module__": __name__})


@functools.cache
def _wide_inside(cls: Any) -> Any:
    """A subclass of an operator that computes in float64 where the operator's forward casts to a narrower
    type. A rule that casts to a narrower type than its forward loses digits, and stays as it is."""
    forward = cls.forward_ops

    @functools.wraps(forward)
    def forward_ops(self: Any, *values: Any) -> Any:
        return in_float64(functools.partial(forward, self))(*values)

    members = {"forward_ops": forward_ops, "__module__": __name__}
    if hasattr(cls, "backward_ops"):
        members["backward_ops"] = _wide_rule(forward, cls.backward_ops)
    return type(cls)(cls.__name__, (cls,), members)


def _wide_rule(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    def roundings(function: Callable[..., Any], *args: Any) -> float:
        return float(jnp.finfo(narrowest_type(jax.make_jaxpr(function)(*args))).eps)

    @functools.wraps(backward)  # for messages about a rule that takes other arguments
    def backward_ops(self: Any, adj: Any, val: Any, *values: Any) -> Any:
        rule, value = functools.partial(backward, self), functools.partial(forward, self)
        if roundings(rule, adj, val, *values) > roundings(value, *values):
            return rule(adj, val, *values)
        return in_float64(rule)(adj, val, *values)

    return backward_ops


def _smooth_field(value: Any) -> Any:
    return replace(value, structure=smoothed(value.structure)) if isinstance(value, Body) else value
