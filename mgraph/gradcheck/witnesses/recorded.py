"""What was recorded in a graph, as a function of some of its leaves, in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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
from .contraction import Point, Values, total


def recorded_function(
    excerpt: Excerpt, output: int, chosen: Sequence[int], leaves: Sequence[np.ndarray], draw_seed: int
) -> Values:
    """The value of the row ``output`` as a function of the ``chosen`` leaves; the others keep their values.

    It is computed in float64 throughout.
    """
    computed = _computed(widened(excerpt.structure), output, chosen, leaves, draw_seed)

    def values(point: Point, rule_set: str, frozen: int | None) -> Any:
        return computed(point, None, rule_set, frozen)

    return values


def check_numbers(
    excerpt: Excerpt,
    output: int,
    chosen: Sequence[int],
    leaves: Sequence[np.ndarray],
    draw_seed: int,
    rule_set: str,
) -> None:
    """Trace the gradient of that function as programs do, where the numbers of ``runtime_fields`` are
    arguments. Rules that ask which numbers these are raise."""
    structure, numbers = widened(excerpt.structure).generic()
    if not numbers:
        return
    computed = _computed(structure, output, chosen, leaves, draw_seed)

    def loss(point: Point, numbers: Any) -> Any:
        return total(jnp.sum(v) for v in jax.tree.leaves(computed(point, numbers, rule_set)) if is_real(v))

    jax.eval_shape(jax.grad(loss), [leaves[k] for k in chosen], number_vector(numbers, wide=True))


def _computed(
    structure: Structure, output: int, chosen: Sequence[int], leaves: Sequence[np.ndarray], draw_seed: int
) -> Callable[..., Any]:
    """The value of the row ``output`` at a point, with the numbers of a generic structure, by a rule set."""
    key = jax.random.key(draw_seed & 0xFFFFFFFF)

    def value(point: Point, numbers: Any, rule_set: str, frozen: int | None = None) -> Any:
        known: list[Any] = list(leaves)
        for k, moved in zip(chosen, point, strict=True):
            known[k] = moved
        moving = {k for i, k in enumerate(chosen) if i != frozen}
        trained = tuple(k in moving for k in range(len(known)))
        rows = trace(structure, known, numbers=numbers, rule_set=rule_set, trained=trained, key=key)
        return rows[output]

    return value


def wide(value: Any) -> np.ndarray:
    """A value as NumPy's array; in float64 if it is of a floating point type."""
    array = np.asarray(value)
    return array.astype(np.float64) if is_real(array) else array


def widened(structure: Structure) -> Structure:
    """The same computation in float64 throughout: random leaves are drawn in float64, and casts to floating
    point types, also in bodies of loops, cast to float64. Operators with a surrogate compute it."""
    rows = (
        _wide_leaf(row) if is_leaf(row) else (_rebuilt(row[0], _wide_field), *row[1:])
        for row in structure.rows
    )
    return replace(structure, rows=tuple(rows))


def smoothed(structure: Structure) -> Structure:
    """The same computation, in which operators with a surrogate compute it."""
    rows = (row if is_leaf(row) else (_rebuilt(row[0], _smooth_field), *row[1:]) for row in structure.rows)
    return replace(structure, rows=tuple(rows))


def _wide_leaf(row: Row) -> Row:
    """A leaf, drawn in float64 if it is a random one of a floating point type."""
    head, spec, *rest = row
    if isinstance(spec, Spec) and spec.type.is_float:
        spec = spec_of(spec.shape, Type.float64)
    return head, spec, *rest


def _rebuilt(operator: Any, converted: Callable[[Any], Any]) -> Any:
    """The operator with converted fields, and with its surrogate as forward."""
    cls: Any = type(operator)
    fields = {name: converted(getattr(operator, name)) for name in operator.fields}
    return make_operator(_smooth(cls), fields)


@functools.cache
def _smooth(cls: Any) -> Any:
    """The class of an operator, or where it has a surrogate one with this as forward and the same rule."""
    if cls.surrogate_ops is None:
        return cls
    return type(cls)(cls.__name__, (cls,), {"forward_ops": cls.surrogate_ops, "__module__": __name__})


def _wide_field(value: Any) -> Any:
    if isinstance(value, Type) and value.is_float:
        return Type.float64
    if isinstance(value, Body):
        return replace(value, structure=widened(value.structure))
    return value


def _smooth_field(value: Any) -> Any:
    return replace(value, structure=smoothed(value.structure)) if isinstance(value, Body) else value
