"""Compares two traces: numbers within a tolerance, everything else the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.helpers.marian_lines import Different

from .trace import changes

COSTS, PARAMETERS = 1e-4, 2e-3
NUMBER = re.compile(r"\d[\d,]*\.\d+(?:e[-+]\d+)?")
COST = re.compile(r"Cost (\S+)")
# Attention depends only on differences between its scores, and a key's bias adds the same to all of them: its
# gradient is only rounding, which Adam amplifies to whole steps.
WITHOUT_GRADIENT = "_bk"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near two trainings are.

    costs: the largest relative difference between the costs of an update. parameters: the L2 norm of the
    difference between the saved parameters, relative to that of the parameters, without those that have no
    gradient; all: with them.
    """

    costs: float
    parameters: float
    all: float

    def __str__(self) -> str:
        return f"costs {self.costs:.0e}, parameters {self.parameters:.0e}, key biases too {self.all:.0e}"


def compare_lines(theirs: Sequence[str], ours: Sequence[str]) -> float:
    """The largest relative difference between the costs; raises Different if the lines differ otherwise.

    Other numbers may differ by as much, plus one unit of the last printed digit.
    """
    worst = 0.0
    for their, our in zip(theirs, ours, strict=False):
        numbers = [NUMBER.findall(line) for line in (their, our)]
        where = f"\n  Marian: {their}\n  mgraph: {our}"
        if NUMBER.sub("", their) != NUMBER.sub("", our):
            raise Different(where)
        for first, second in zip(*numbers, strict=True):
            if abs(_number(first) - _number(second)) > COSTS * abs(_number(first)) + _unit(first):
                raise Different(f"after costs within {worst:.0e}{where}")
        costs = [COST.search(line) for line in (their, our)]
        if costs[0] and costs[1]:
            one, other = float(costs[0][1]), float(costs[1][1])
            gap = 0.0 if one == other else abs(other - one) / abs(one)
            if not gap <= COSTS:
                raise Different(f"after costs within {worst:.0e}{where}")
            worst = max(worst, gap)
    if len(theirs) != len(ours):
        raise Different(f"Marian has {len(theirs)} lines, we have {len(ours)}")
    return worst


def compare_parameters(
    before: Mapping[str, np.ndarray], moved: np.ndarray, ours: Mapping[str, np.ndarray]
) -> tuple[float, float]:
    """The relative difference of the parameters, without those that have no gradient and with them.

    before: the parameters at the start. moved: how far Marian moved them, from ``changes``. ours: ours at the
    end. Raises Different if their sizes differ, or if the first difference is above the tolerance.
    """
    names = sorted(name for name in ours if not name.startswith("special:"))
    own = changes(before, ours, np.float32)
    if own.shape != moved.shape:
        raise Different(f"Marian has {moved.size} numbers in the parameters, we have {own.size}")
    gaps, sizes, start = dict[str, float](), dict[str, float](), 0
    for name in names:
        end = start + ours[name].size
        gaps[name] = float(np.square(own[start:end] - moved[start:end].astype(np.float32)).sum())
        sizes[name] = float(np.square(ours[name].astype(np.float64)).sum())
        start = end
    sound = [name for name in names if not name.endswith(WITHOUT_GRADIENT)]
    found = np.sqrt(sum(gaps[name] for name in sound) / sum(sizes[name] for name in sound))
    if not found <= PARAMETERS:
        worst = sorted(sound, key=lambda name: -gaps[name])[:3]
        each = ", ".join(f"{name} {np.sqrt(gaps[name] / (sizes[name] + 1e-12)):.0e}" for name in worst)
        raise Different(f"parameters differ by {found:.0e}; most of it in {each}")
    return float(found), float(np.sqrt(sum(gaps.values()) / sum(sizes.values())))


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _unit(text: str) -> float:
    """One unit of the last decimal of a printed number: 1e-4 of ``0.7051``, 1e-6 of ``5.00e-04``."""
    mantissa, _, exponent = text.partition("e")
    return 1.001 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
