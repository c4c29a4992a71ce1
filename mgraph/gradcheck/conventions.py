"""Conventions: what an operator promises where no derivative decides, compared with what its rule gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..cases import Convention
from ..errors import first_line
from ..node import NaryNodeOp
from .report import TOLERANCES, GradientCheck
from .trial import Rule, Trial
from .witnesses.agreement import Finding, worst

_LEAST = 1e-12
"""Absolute tolerance: the difference that is allowed where zero is promised."""


def convention_checks(cls: type[NaryNodeOp]) -> list[GradientCheck]:
    """For each convention of an operator, one check for each child that gets a gradient."""
    checks = []
    with jax.enable_x64(True), jax.disable_jit():
        for convention in cls.conventions:
            children = [i for i, g in enumerate(convention.gradients) if g is not None]
            names = [f"{convention.case} as promised, child {i}" for i in children]
            shapes = [convention.children[i].shape for i in children]
            try:
                found = broken(cls.backward_ops, trial_of(cls, convention), convention)
                checks += [_check(*of_child) for of_child in zip(names, shapes, found, strict=True)]
            except Exception as e:  # the user's rule may raise anything
                first = first_line(e)
                problem = f"convention: {type(e).__name__}: {first}"
                pairs = zip(names, shapes, strict=True)
                checks += [GradientCheck(name, shape, {}, problem) for name, shape in pairs]
    return checks


def trial_of(cls: type[NaryNodeOp], convention: Convention) -> Trial:
    """The trial of a convention's inputs, on which any rule can be tried."""
    return Trial(cls, convention.case, convention.children)


def keeps(rule: Rule, trial: Trial, convention: Convention) -> bool:
    """Whether a rule gives what an operator's convention promises; ``trial`` is made from the convention."""
    return not any(finding.wrong for finding in broken(rule, trial, convention))


def broken(rule: Rule, trial: Trial, convention: Convention) -> Sequence[Finding]:
    """For each child with a gradient, where the rule is farthest from what the convention promises."""
    adjoint = convention.adjoint
    adjoints = [jnp.broadcast_to(jnp.asarray(adjoint, a.dtype), a.shape) for a in trial.adjoints]
    found = trial.gradients(rule, adjoints)
    promised = [np.asarray(g, np.float64) for g in convention.gradients if g is not None]
    return [_farthest(f, np.broadcast_to(p, f.shape)) for f, p in zip(found, promised, strict=True)]


def _farthest(found: Any, promised: Any) -> Finding:
    """The worst element. NaN matches only NaN, and an infinity only itself."""
    met = np.isnan(found) & np.isnan(promised) | (found == promised)
    found, promised = np.where(met, 0.0, found), np.where(met, 0.0, promised)
    bound = np.nan_to_num(TOLERANCES["convention"] * np.abs(promised) + _LEAST, posinf=0.0)
    if not found.size:
        return Finding(None, 0.0, 0.0, 0.0)
    k = worst(found.reshape(-1), promised.reshape(-1), bound.reshape(-1))
    where = tuple(map(int, np.unravel_index(k, found.shape)))
    return Finding(where, *(float(a.reshape(-1)[k]) for a in (found, promised, bound)))


def _check(name: str, shape: tuple[int, ...], finding: Finding) -> GradientCheck:
    return GradientCheck(name, shape, {"convention": finding.off}, findings={"convention": finding})
