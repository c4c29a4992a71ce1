"""Probes: points beyond the cases of an operator, where a rule and a mutant of it may still differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...cases import Case
from ...node import NaryNodeOp
from ..trial import Trial

_SEEDS = (101, 102)


class Probe(NamedTuple):
    """A trial beyond the cases."""

    label: str
    trial: Trial
    resized: bool
    """Whether its children have other shapes than those of the case."""


def probes_of(cls: type[NaryNodeOp], case: Case) -> Iterator[Probe]:
    """The probes near one case, on which the rule itself can be evaluated.

    Ordinary ones: other random values, larger and smaller ones, other sizes, one axis more. Then ties, zeros,
    and numbers that are not finite.
    """
    for label, other, arrays in _points(case):
        try:
            trial = Trial(cls, other, arrays)
            _ = trial.own_gradients
        except Exception:  # the operator may not take such children at all
            continue
        yield Probe(label, trial, other is not case)


def _points(case: Case) -> Iterator[tuple[str, Case, Sequence[np.ndarray]]]:
    yield from (("other values", case, case.values(seed)) for seed in _SEEDS)
    sizes = _resized(case, lambda shape: tuple(n + (n > 1) for n in shape))
    yield "other sizes", sizes, sizes.values(_SEEDS[0])
    deeper = _resized(case, lambda shape: (2, *shape))
    yield "an axis more", deeper, deeper.values(_SEEDS[0])
    for label, change in _CHANGES:
        arrays = case.values(_SEEDS[0])
        domains = case.domains or ("real",) * len(arrays)
        moved = [change(a) if d in ("real", "distinct") else a for a, d in zip(arrays, domains, strict=True)]
        if any(m is not a for m, a in zip(moved, arrays, strict=True)):
            yield label, case, moved


def _resized(case: Case, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Case:
    shapes = map(change, case.shapes)
    return Case(*shapes, domain=case.domains, through=case.through, **case.fields)


def _with_one(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def changed(x: np.ndarray) -> np.ndarray:
        x = x.copy()
        np.atleast_1d(x)[..., :1] = value
        return x

    return changed


_CHANGES: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("large values", lambda x: 20 * x),
    ("small values", lambda x: x / 20),
    ("ties", np.round),
    ("zeros", np.zeros_like),
    ("NaN", _with_one(math.nan)),
    ("inf", _with_one(math.inf)),
    ("-inf", _with_one(-math.inf)),
    ("-inf only", lambda x: np.full_like(x, -math.inf)),
)
