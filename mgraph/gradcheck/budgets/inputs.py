"""Stress inputs: numbers from the domains of a case for which a correct formula may compute badly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...cases import Case
from ...types import as_type

Array = np.ndarray

_LARGE = 1000.0
_MASKED = 1 / 3
"""The share of masked elements."""
_CLOSE = 8
"""Close numbers differ by at most this many units in the last place."""
_SCALES = 1.3, 0.7, 2.1, 0.9
"""A number for each child, which all its elements equal, or nearly equal; none is a number of few bits."""


@dataclass(frozen=True)
class Stress:
    """Values of the children of a case, rounded to an element type."""

    kind: str
    """One of ``KINDS``; followed by ``child 1`` where the others keep their usual values."""
    arrays: list[Array]
    adjoint: float = 1.0
    """What the random adjoints of the outputs are multiplied by."""


class _Numbers:
    """The limits of an element type, and random numbers within them."""

    def __init__(self, element_type: str, seed: int) -> None:
        limits = jnp.finfo(as_type(element_type).dtype)
        self.eps, self.tiny, self.max = (float(n) for n in (limits.eps, limits.tiny, limits.max))
        self.octaves = 0.4 * -math.log2(self.tiny)
        """The largest binary logarithm of numbers whose squares, and the squares' inverses, are far from the
        limits."""
        self.random = np.random.default_rng(seed)

    def wide(self, shape: Any) -> Array:
        """Two to the power of random exponents."""
        return np.exp2(self.random.uniform(-self.octaves, self.octaves, shape))

    def close(self, shape: Any) -> Array:
        """Numbers that differ from 1 by few units in the last place."""
        return 1 + self.eps * self.random.integers(-_CLOSE, _CLOSE, shape, endpoint=True)

    def signs(self, shape: Any) -> Array:
        return self.random.choice([-1.0, 1.0], shape)

    def among(self, usual: Array, share: float, value: float) -> Array:
        """``value`` in place of a share of the usual numbers."""
        return np.where(self.random.uniform(size=usual.shape) < share, value, usual)


Change = Callable[[_Numbers, Array, float], Array]
"""A function of the usual values of a child, and of one of ``_SCALES``, that returns other values."""


def _huge(n: _Numbers, x: Array, _: float) -> Array:
    return x * (n.max / 4 / np.max(np.abs(x), initial=n.tiny))


def _tiny(n: _Numbers, x: Array, _: float) -> Array:
    return np.copysign(np.maximum(4 * np.abs(x), 1) * n.tiny, x)


_ANYWHERE: Mapping[str, Change] = {
    "tenfold": lambda n, x, _: 10 * x,
    "large": lambda n, x, _: _LARGE * x,
    "huge": _huge,
    "small": lambda n, x, _: n.eps * x,
    "tiny": _tiny,
    "wide": lambda n, x, _: np.copysign(n.wide(x.shape), x),
    "equal": lambda n, x, scale: np.full(x.shape, scale),
    "close": lambda n, x, scale: scale * n.close(x.shape),
}

_WITH_SIGNS: Mapping[str, Change] = {
    **_ANYWHERE,
    "cancelling": lambda n, x, scale: scale * n.close(x.shape) * n.signs(x.shape),
    "zeros": lambda n, x, _: n.among(x, 0.5, 0.0),
}

_CHANGES: Mapping[str, Mapping[str, Change]] = {
    "real": {
        **_WITH_SIGNS,
        "masked": lambda n, x, _: n.among(x, _MASKED, -math.inf),
        "masked low": lambda n, x, _: n.among(x, _MASKED, -n.max / 2),
    },
    "distinct": _WITH_SIGNS,
    "positive": _ANYWHERE,
    "unit": {
        "large": lambda n, x, _: 1 - n.eps * np.ceil(_CLOSE * x),
        "small": _ANYWHERE["small"],
        "tiny": _tiny,
        "wide": lambda n, x, _: 0.5 * np.minimum(n.wide(x.shape), 1),
        "equal": lambda n, x, scale: np.full(x.shape, scale / 4),
        "close": lambda n, x, scale: scale / 4 * n.close(x.shape),
    },
}
"""For each domain of numbers, the changes that stress it and stay inside; masks and integers keep their
values."""

_ALONE = ("large", "huge", "tiny", "masked", "masked low")
"""Kinds that are also tried on one child at a time, while the others keep their usual values."""
_TWICE = ("usual", "tenfold", "wide")
"""Kinds of which there are two draws."""
_TOGETHER = tuple(kind for kind in _CHANGES["real"] if not kind.startswith("masked"))
_MOST_ALONE = 4
_ADJOINTS = ("large adjoint", "tiny adjoint")

KINDS = ("usual", *_CHANGES["real"], *_ADJOINTS)
"""The inputs that are tried:

- ``usual``: those of the case's domain;
- ``tenfold``, ``large``, ``huge``: 10 times as large; 1000 times as large; up to a quarter of the largest
  number; in ``unit``, ``large`` is close to 1;
- ``small``, ``tiny``: as small as the rounding of 1; near the smallest normal number;
- ``wide``: over most of the orders of magnitude of the type;
- ``equal``, ``close``, ``cancelling``: all the same; within 8 units in the last place; like ``close``, with
  random signs;
- ``zeros``: half of them 0;
- ``masked``, ``masked low``: a third of one child is -inf; is minus half of the largest number;
- ``large adjoint``, ``tiny adjoint``: usual inputs, and adjoints 1000 times as large; so small that their
  roundings are near the smallest normal number.
"""


def stress_inputs(case: Case, element_type: str, seed: int = 0) -> Iterator[Stress]:
    """Inputs of every kind that the domains of a case allow, in an element type."""
    numbers = _Numbers(element_type, seed)
    usual, others = case.values(seed), case.values(seed + 1)
    moved = [i for i, domain in enumerate(case.domains) if domain in _CHANGES]

    def stress(kind: str, values: list[Array], chosen: list[int]) -> Stress:
        arrays = list(values)
        for i in chosen:
            if kind in _CHANGES[case.domains[i]]:
                arrays[i] = _CHANGES[case.domains[i]][kind](numbers, values[i], _SCALES[i % len(_SCALES)])
        return Stress(kind, [_rounded(a, element_type) for a in arrays])

    yield stress("usual", usual, [])
    if not moved:
        return
    for kind in _TWICE:
        yield stress(kind, others, moved)
    for kind in _TOGETHER:
        if any(kind in _CHANGES[case.domains[i]] for i in moved):
            yield stress(kind, usual, moved)
    for kind in _ALONE:
        for i in moved[:_MOST_ALONE]:
            if kind in _CHANGES[case.domains[i]] and (len(moved) > 1 or kind.startswith("masked")):
                alone = f"{kind} child {i}" if len(moved) > 1 else kind
                yield replace(stress(kind, usual, [i]), kind=alone)
    for kind, scale in zip(_ADJOINTS, (_LARGE, numbers.tiny / numbers.eps), strict=True):
        yield replace(stress("usual", usual, []), kind=kind, adjoint=scale)


def _rounded(array: Array, element_type: str) -> Array:
    return array.astype(as_type(element_type).dtype) if array.dtype.kind == "f" else array
