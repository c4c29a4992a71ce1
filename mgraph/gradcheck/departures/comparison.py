"""Arrays held side by side: how far two gradients are apart, and how far rounding alone moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...rules import row_gradients
from ...specs import is_real

MOVED = 8
"""By how many units in the last place inputs are perturbed to see how far rounding moves a gradient."""


class Comparison(NamedTuple):
    """A gradient that was found beside the one that was expected; each a number."""

    adjoint: Any
    """The largest magnitude in the adjoint of the operator's value."""
    value: Any
    """The largest magnitude in what the gradient is by."""
    size: Any
    """The largest magnitude in the gradient that was expected."""
    difference: Any
    """The largest difference; infinite where only one of the two is finite, or neither is."""
    noise: Any
    """How far the two gradients move when their inputs move by a few units in the last place."""
    place: Any
    """Where the largest difference is, counted through the flat array."""
    expected: Any
    found: Any
    factor: Any
    """The number that the expected gradient is to be multiplied by to come nearest to the one found."""
    rest: Any
    """The largest difference that is then left."""


class Distance(NamedTuple):
    """How far an array is from the one that was expected."""

    size: Any
    """The largest magnitude in the expected one."""
    largest: Any
    """The largest difference; infinite where a number is not finite."""
    relative: Any
    """The norm of the difference, relative to that of the expected one."""


def comparisons(
    operator: Any, rule_set: str, trained: tuple[bool, ...], gradients: Callable[..., Any], *given: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Comparison | None, ...]]:
    """The gradients of one operator by JAX and by a rule, and for each child how they compare.

    ``given`` are the operator's adjoint, its value and those of its children, and ``gradients(rule_set, adj,
    value, children)`` evaluates them. An operator whose rule is no derivative by design has only a rule.
    """
    adj, value, children = given
    moved = (
        _moved(adj),
        value,
        tuple(_moved(c) if t else c for c, t in zip(children, trained, strict=True)),
    )
    found = gradients(rule_set, *given)
    if not operator.gradient_is_derivative:
        return found, found, tuple(None for _ in children)
    expected = gradients("jax", *given)
    moves = gradients("jax", *moved), gradients(rule_set, *moved)
    compared = tuple(
        compare(adj, child, e, f, *moved_to) if e is not None else None
        for child, e, f, *moved_to in zip(children, expected, found, *moves, strict=True)
    )
    return expected, found, compared


def gradients_in_place(operator: Any, trained: tuple[bool, ...]) -> Callable[..., Any]:
    """``gradients`` for ``comparisons`` inside of a program."""

    def gradients(rule_set: str, adj: Any, value: Any, children: tuple[Any, ...]) -> tuple[Any, ...]:
        return row_gradients(operator, rule_set, trained, adj, value, children)

    return gradients


@jax.jit
def compare(
    adj: Any, child: Any, expected: Any, found: Any, expected_moved: Any, found_moved: Any
) -> Comparison:
    """The comparison of two gradients by ``child``; one that was found as ``None`` is zero."""
    right, wrong = _vector(expected, expected), _vector(found, expected)
    apart = _apart(right, wrong)
    place = jnp.argmax(apart)
    noise = [
        jnp.max(_apart(here, _vector(there, expected)), initial=0.0)
        for here, there in ((right, expected_moved), (wrong, found_moved))
    ]
    power = jnp.sum(right * right)
    factor = jnp.where(power > 0, jnp.sum(right * wrong) / jnp.where(power > 0, power, 1.0), 0.0)
    return Comparison(
        _largest(_vector(adj, adj)),
        _largest(_vector(child, child)),
        _largest(right),
        apart[place],
        jnp.maximum(*noise),
        place,
        right[place],
        wrong[place],
        factor,
        jnp.max(jnp.abs(wrong - factor * right), initial=0.0),
    )


@jax.jit
def distance(expected: Any, found: Any) -> Distance:
    """How far ``found`` is from ``expected``; they may differ in element type."""
    right, wrong = _vector(expected, expected), _vector(found, expected)
    apart = _apart(right, wrong)
    norm = jnp.linalg.norm(right)
    relative = jnp.linalg.norm(apart) / jnp.where(norm > 0, norm, 1.0)
    return Distance(_largest(right), jnp.max(apart, initial=0.0), relative)


def _vector(array: Any, like: Any) -> jax.Array:
    """The elements of floating point type of an array or of the parts of a tuple, in the widest type; zeros
    for what ``like`` has and ``array`` lacks, and one zero where there are no elements."""
    kind = jnp.result_type(float)
    if array is None:
        array = jax.tree.map(jnp.zeros_like, like)
    parts = [jnp.ravel(part).astype(kind) for part in jax.tree.leaves(array) if is_real(part) and part.size]
    return jnp.concatenate(parts) if parts else jnp.zeros(1, kind)


def _apart(a: jax.Array, b: jax.Array) -> jax.Array:
    """Differences elementwise; infinite where a number is not finite."""
    return jnp.where(jnp.isfinite(a) & jnp.isfinite(b), jnp.abs(a - b), jnp.inf)


def _largest(vector: jax.Array) -> jax.Array:
    magnitude = jnp.max(jnp.abs(vector), initial=0.0)
    return jnp.where(jnp.isnan(magnitude), jnp.inf, magnitude)


@jax.jit
def _moved(value: Any) -> Any:
    """Floating point numbers moved by up to ``MOVED`` units in the last place, up or down.

    The move follows from the number, so that equal numbers stay equal: what takes the largest of several must
    not see a tie broken. Zeros stay zeros.
    """
    return jax.tree.map(lambda x: _shifted(x) if is_real(x) else x, value)


def _shifted(x: jax.Array) -> jax.Array:
    bits = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[x.dtype.itemsize]
    width = 8 * x.dtype.itemsize
    pattern = jax.lax.bitcast_convert_type(x, bits)
    mixed = (pattern ^ (pattern >> bits(width // 2))) * bits(0x9E3779B97F4A7C15 >> (64 - width) | 1)
    share = (mixed >> bits(width - 8)).astype(x.dtype) / 127.5 - 1
    return x * (1 + MOVED * jnp.finfo(x.dtype).eps * share).astype(x.dtype)
