"""Optimizers with Marian's update formulas.

Source: Marian, ``optimizers/optimizers.h``; the options ``--learn-rate``, ``--optimizer-params``,
``--clip-norm``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .base import Optimizer, OptimizerState, Setting

Rule = Callable[..., tuple[Any, ...]]
"""``(steps, gradient, parameter, *moments)`` to the direction and the new moments, for one parameter, which
then moves by ``-learn_rate`` times the direction."""


def _by_rule(learn_rate: Any, names: tuple[str, ...], rule: Rule) -> optax.GradientTransformation:
    """The transformation that applies ``rule`` to each parameter, with the moments ``names``."""

    def init(params: Any) -> OptimizerState:
        return OptimizerState(
            jnp.zeros((), jnp.int32), {name: jax.tree.map(jnp.zeros_like, params) for name in names}
        )

    def update(gradients: Any, state: OptimizerState, params: Any = None) -> tuple[Any, OptimizerState]:
        steps = state.steps + 1
        tree: Any
        leaves, tree = jax.tree.flatten(gradients)
        values = [None] * len(leaves) if params is None else tree.flatten_up_to(params)
        before = [tree.flatten_up_to(state.moments[name]) for name in names]
        found = [rule(steps, *of_one) for of_one in zip(leaves, values, *before, strict=True)]
        directions, *after = zip(*found, strict=True) if found else [() for _ in (0, *names)]
        moves = [-learn_rate * direction for direction in directions]
        moments = {name: tree.unflatten(part) for name, part in zip(names, after, strict=True)}
        return tree.unflatten(moves), OptimizerState(steps, moments)

    return optax.GradientTransformation(init, update)


def _at_least_normal(eps: float, kind: Any) -> float:
    """``eps``, but at least twice the smallest normal number of the type, so that nothing divides by 0."""
    return max(eps, 2 * float(jnp.finfo(kind).smallest_normal))


class Sgd(Optimizer):
    """``p -= eta * g``."""

    def transformation(self, learn_rate: Any) -> optax.GradientTransformation:
        return _by_rule(learn_rate, (), lambda steps, g, p: (g,))


class Adagrad(Optimizer):
    """``G += g^2``, ``p -= eta / (sqrt(G) + eps) * g``. Source: Duchi et al. 2011."""

    eps = Setting()

    def __init__(self, learn_rate: float, eps: float = 1e-8, clip_norm: float = 0.0) -> None:
        super().__init__(learn_rate, clip_norm)
        self.eps = eps

    def transformation(self, learn_rate: Any) -> optax.GradientTransformation:
        def rule(steps: Any, g: Any, p: Any, total: Any) -> tuple[Any, Any]:
            total = total + g * g
            return g / (jnp.sqrt(total) + _at_least_normal(self.eps, g.dtype)), total

        return _by_rule(learn_rate, ("adagrad_gt",), rule)


class Adam(Optimizer):
    """``m = b1 m + (1-b1) g``, ``v = b2 v + (1-b2) g^2``,
    ``p -= eta * ((m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + w p)``.

    ``decay`` is ``w``, the fourth of ``--optimizer-params`` (AdamW); as in Marian it acts on every
    parameter, biases and norms included. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019.
    """

    beta1, beta2 = Setting(below=1), Setting(below=1)
    eps, decay = Setting(), Setting()
    denominators: tuple[float, float] = (0.0, 0.0)
    """``1-b1^t`` and ``1-b2^t`` at ``t = 0``. To continue with moments made with other betas, set these to
    their values after the last update, and the steps of the state to 0."""

    def __init__(
        self,
        learn_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        decay: float = 0.0,
        clip_norm: float = 0.0,
    ) -> None:
        super().__init__(learn_rate, clip_norm)
        self.beta1, self.beta2 = beta1, beta2
        self.eps, self.decay = eps, decay

    def transformation(self, learn_rate: Any) -> optax.GradientTransformation:
        before1, before2 = self.denominators

        def rule(steps: Any, g: Any, p: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            # 1 - beta uses the rounded beta, or moments and corrections would differ in scale.
            b1, b2 = (float(g.dtype.type(beta)) for beta in (self.beta1, self.beta2))
            m = b1 * m + (1 - b1) * g
            v = b2 * v + (1 - b2) * (g * g)
            root = jnp.sqrt(v / bias_correction(b2, steps, g.dtype, before2))
            mean = m / bias_correction(b1, steps, g.dtype, before1)
            move = mean / (root + _at_least_normal(self.eps, g.dtype))
            return (move + self.decay * p if self.decay else move), m, v

        return _by_rule(learn_rate, ("adam_mt", "adam_vt"), rule)


def bias_correction(beta: float, steps: Any, kind: Any, before: float = 0.0) -> Any:
    """``1 - (1 - before) beta^steps``, accurate even near 0."""
    logarithm = steps.astype(kind) * (math.log(beta) if beta else -math.inf)
    if before:
        logarithm = logarithm + (math.log1p(-before) if before < 1 else -math.inf)
    return -jnp.expm1(logarithm)
