"""Simpler examples: what to try in place of one that fails, and which of two is simpler.

Nothing here knows what fails. Many of the examples cannot be recorded; trying them is the way to find out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...cases import Case
from ...specs import is_real
from ..example import Adjoint, Example
from .plainness import PLAIN, PLAIN_INTEGERS, plain, plainness, within

_MOST_MOVED = 12
"""With up to this many elements, each is simplified by itself."""
_MOST_HOT = 24
"""How many output elements are each tried as the only one that counts."""

Fields = Mapping[str, Any]
Sizes = Mapping[tuple[int, int], int]
"""By the indices of a child and of its axis."""


def cost(example: Example) -> tuple[float, ...]:
    """A cost that is lower for a simpler example: fewer elements, axes and children, plainer fields, adjoint
    and values."""
    adjoint = example.adjoint
    return (
        sum(v.size for v in example.values),
        sum(v.ndim for v in example.values),
        len(example.values),
        sum(_field_cost(example, name, value) for name, value in example.case.fields.items()),
        math.inf if adjoint is None else float(sum(map(np.count_nonzero, adjoint))),
        math.inf if adjoint is None else plainness(*adjoint),
        plainness(*example.values),
    )


# -- shapes


def simpler_shapes(example: Example) -> Iterator[Example]:
    """The example with shorter axes, all of one size or a single one; with fewer axes; with fewer
    children."""
    axes = [(i, k) for i, v in enumerate(example.values) for k in range(v.ndim)]
    size = {(i, k): example.values[i].shape[k] for i, k in axes}
    sizes = sorted({n for n in size.values() if n > 1}, reverse=True)
    for m in (1, 2):
        yield _resized(example, {axis: min(m, n) for axis, n in size.items()}, example.case.fields)
    for n in sizes:
        for m in _shorter(n):
            for fields in _fields_of_size(example.case.fields, n, m):
                yield _resized(example, {axis: m if s == n else s for axis, s in size.items()}, fields)
    for r in range(1, max((v.ndim for v in example.values), default=0) + 1):
        yield from _without_axis(example, r, range(len(example.values)))
    for axis in axes:
        for m in _shorter(size[axis]):
            for sizes_with in _sizes_with(size, axis, m):
                for fields in _fields_of_size(example.case.fields, size[axis], m):
                    yield _resized(example, sizes_with, fields)
    for i, value in enumerate(example.values):
        for r in range(1, value.ndim + 1):
            yield from _without_axis(example, r, [i])
    for i in range(len(example.values)):
        yield _chosen(example, [j for j in range(len(example.values)) if j != i])


def _shorter(n: int) -> list[int]:
    return sorted({m for m in (1, 2, 3, n // 2, n - 1) if 0 < m < n})


def _sizes_with(size: Sizes, axis: tuple[int, int], m: int) -> Iterator[Sizes]:
    """One axis shorter: alone, and together with axes of other children whose sizes may follow from it."""
    n, (child, _) = size[axis], axis
    seen: list[Sizes] = []
    for change in (lambda s: s, lambda s: s * m // n if s % n == 0 else s, lambda s: s - n + m):
        found = {other: s if other[0] == child else max(change(s), 1) for other, s in size.items()}
        if found not in seen:
            seen.append(found)
            yield {**found, axis: m}


def _fields_of_size(fields: Fields, n: int, m: int) -> Iterator[Fields]:
    """The fields as they are, and with numbers that may follow from a size ``n`` changed to fit ``m``."""
    seen = []
    for change in (
        lambda v: v,
        lambda v: m if v == n else v,
        lambda v: v * m // n if v % n == 0 else v,
        lambda v: m - 1 if v == n - 1 else v,
    ):
        found = {name: _in_integers(value, change) for name, value in fields.items()}
        if found not in seen:
            seen.append(found)
            yield found


def _in_integers(value: Any, change: Callable[[int], int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_in_integers(v, change) for v in value)
    return change(value) if type(value) is int else value


def _resized(example: Example, sizes: Sizes, fields: Fields) -> Example:
    """The first elements along each axis; integers that index an axis stay below its size."""
    values = []
    limits: dict[int, int] = {}
    for i, value in enumerate(example.values):
        target = tuple(sizes[i, k] for k in range(value.ndim))
        values.append(value[tuple(slice(n) for n in target)])
        limits.update({old: new for old, new in zip(value.shape, target, strict=True) if new < old})
    domains = [_resized_domain(domain, limits) for domain in example.case.domains]
    fitted = [_fitted(v, d, limits) for v, d in zip(values, domains, strict=True)]
    return _made(example, fitted, domains, fields)


def _resized_domain(domain: str, limits: Mapping[int, int]) -> str:
    """``index:n`` and ``offsets:n`` for the size that an axis of ``n`` now has."""
    kind, _, bound = domain.partition(":")
    return f"{kind}:{limits.get(int(bound), int(bound))}" if bound else domain


def _fitted(value: np.ndarray, domain: str, limits: Mapping[int, int]) -> np.ndarray:
    """The value with its integers moved into the range that is left."""
    if is_real(value) or not value.size:
        return value
    kind, _, bound = domain.partition(":")
    if kind == "offsets":
        fitted = np.minimum(value, int(bound))
        fitted[..., 0], fitted[..., -1] = 0, int(bound)
        return fitted
    if kind == "index":
        return np.minimum(value, int(bound) - 1).astype(value.dtype)
    above = [new for old, new in limits.items() if int(value.max()) < old]
    return np.minimum(value, min(above) - 1).astype(value.dtype) if above else value


def _without_axis(example: Example, r: int, children: Iterable[int]) -> Iterator[Example]:
    """The first slice along the ``r``-th last axis of the chosen children."""
    rank = max(v.ndim for v in example.values)
    chosen = set(children)
    values = [
        np.take(v, 0, axis=-r) if i in chosen and v.ndim >= r and v.shape[-r] else v
        for i, v in enumerate(example.values)
    ]
    seen: list[Fields] = []
    for change in (
        lambda v: v,
        lambda v: v - 1 if type(v) is int and v > rank - r else v,
        lambda v: _without_entry(v, rank - r) if isinstance(v, tuple) and len(v) == rank else v,
        lambda v: v[: v.index(1)] + v[v.index(1) + 1 :] if isinstance(v, tuple) and 1 in v else v,
    ):
        fields = {name: change(value) for name, value in example.case.fields.items()}
        if fields not in seen:
            seen.append(fields)
            yield _made(example, values, example.case.domains, fields)


def _without_entry(entries: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """Entries per axis without that of ``axis``; for a permutation of axes, the permutation of the others."""
    if sorted(entries, key=str) == sorted(range(len(entries)), key=str):
        return tuple(e - (e > axis) for e in entries if e != axis)
    return entries[:axis] + entries[axis + 1 :]


def _chosen(example: Example, children: list[int]) -> Example:
    values, domains = [example.values[i] for i in children], [example.case.domains[i] for i in children]
    return _made(example, values, domains, example.case.fields)


def _made(example: Example, values: Iterable[np.ndarray], domains: Iterable[str], fields: Fields) -> Example:
    arrays = tuple(values)
    shapes = (v.shape for v in arrays)
    case = Case(*shapes, domain=tuple(domains), through=example.case.through, **fields)
    return replace(example, case=case, values=arrays, adjoint=None)


# -- fields


def simpler_fields(example: Example) -> Iterator[Example]:
    """The example with one field simpler, or left out, which gives it its default."""
    fields = example.case.fields
    for name, value in fields.items():
        rest = {n: v for n, v in fields.items() if n != name}
        yield _made(example, example.values, example.case.domains, rest)
        for simpler in _simpler_fields(value):
            yield _made(example, example.values, example.case.domains, {**rest, name: simpler})


def _simpler_fields(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield False
    elif type(value) in (int, float):
        kind = type(value)
        yield from (kind(x) for x in (0, 1, -1, 2, 3))
        if kind is int:
            yield from (value // 2, value - 1)
        if kind is float and math.isfinite(value):
            yield from (float(plain(value, step)) for step in (1, 0.5, 0.1))
    elif isinstance(value, tuple):
        for i, entry in enumerate(value):
            for simpler in _simpler_fields(entry):
                yield (*value[:i], simpler, *value[i + 1 :])


def _field_cost(example: Example, name: str, value: Any) -> float:
    """More than zero, so that a field that can be left out is left out."""
    if isinstance(value, tuple):
        return 1 + sum(_field_cost(example, name, v) for v in value)
    if isinstance(value, bool):
        return 1.0 + value
    return 1 + plainness(np.asarray(value)) if type(value) in (int, float) else 1.0


# -- values and the adjoint


def simpler_values(example: Example) -> Iterator[Example]:
    """The example with a child all of one number, rounded, or with a single element simpler, within its
    domain."""
    number = sum(v.size for v in example.values)
    for i, value in enumerate(example.values):
        for simpler in _simpler_arrays(value, by_element=number <= _MOST_MOVED):
            values = (*example.values[:i], simpler, *example.values[i + 1 :])
            if within(example.case.domains, values):
                yield replace(example, values=values)


def simpler_adjoint(example: Example, adjoint: Adjoint) -> Iterator[Example]:
    """The example with an ``adjoint`` of one nonzero element, all of one number, rounded, or with a single
    element simpler."""
    outputs = [(i, k) for i, a in enumerate(adjoint) for k in range(a.size)]
    for hot in (1.0, 2.0):
        for i, k in outputs[:_MOST_HOT]:
            only = [np.zeros(a.shape) for a in adjoint]
            only[i].flat[k] = hot
            yield replace(example, adjoint=tuple(only))
    for i, value in enumerate(adjoint):
        for simpler in _simpler_arrays(value, by_element=len(outputs) <= _MOST_MOVED):
            yield replace(example, adjoint=(*adjoint[:i], simpler, *adjoint[i + 1 :]))


def _simpler_arrays(value: np.ndarray, *, by_element: bool) -> Iterator[np.ndarray]:
    if not value.size:
        return
    numbers = PLAIN if is_real(value) else PLAIN_INTEGERS
    steps = (1, 0.5, 0.1) if is_real(value) else ()
    order = np.arange(value.size, dtype=value.dtype).reshape(value.shape)
    yield from (np.full_like(value, number) for number in numbers)
    yield from (plain(value, step) for step in steps)
    if value.size > 1:
        yield from (order, order + 1, *([order + 0.5] if is_real(value) else []))
    if by_element and value.size > 1:
        for k in range(value.size):
            for number in (*numbers, *(plain(value.flat[k], step) for step in steps)):
                moved = value.copy()
                moved.flat[k] = number
                yield moved
