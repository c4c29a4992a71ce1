"""Optimisers with Marian's update formulas, as optax transformations over the parameters of a graph.

Source: Marian, ``optimizers/optimizers.h``; the options ``--learn-rate``, ``--optimizer-params``,
``--clip-norm``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from .errors import ArgumentError, GraphError
from .running.programs import PROGRAMS

if TYPE_CHECKING:
    from .graph import ExpressionGraph


class Optimizer(ABC):
    """Base of the optimisers: gradients are clipped by their global norm, transformed, and applied.

    ``learn_rate`` may be changed between updates without compiling anew. ``clip_norm`` scales the gradients
    of one update so that their L2 norm over all parameters is at most that; 0 is off.
    """

    def __init__(self, learn_rate: float, clip_norm: float = 0.0) -> None:
        if not learn_rate >= 0:
            raise ArgumentError(f"expected a learning rate of at least 0, got {learn_rate}")
        if not clip_norm >= 0:
            raise ArgumentError(f"expected a clip norm of at least 0, got {clip_norm}")
        self.learn_rate = float(learn_rate)
        self.clip_norm = float(clip_norm)
        self._state: Any = None
        self._names: tuple[str, ...] = ()

    @abstractmethod
    def direction(self) -> optax.GradientTransformation:
        """Gradients to the direction in which parameters are moved by ``-learn_rate``."""

    def hyperparameters(self) -> tuple[Any, ...]:
        """What ``direction`` depends on, part of the compiled update's key: all public attributes but the
        learning rate."""
        own = sorted(item for item in vars(self).items() if item[0][0] != "_")
        return tuple(item for item in own if item[0] != "learn_rate")

    def transformation(self) -> optax.GradientTransformation:
        """The whole update but for the learning rate, usable in any optax loop."""
        clip = [optax.clip_by_global_norm(self.clip_norm)] if self.clip_norm else []
        return optax.chain(*clip, self.direction())

    def update(self, graph: ExpressionGraph) -> float:
        """Update the trainable parameters of ``graph`` from their gradients, as one compiled program.

        Returns the L2 norm of the gradients before clipping. ``GraphError`` before ``backward()``.
        """
        nodes = graph.params().trainable()
        if not nodes:
            raise GraphError("the graph has no trainable parameters to update")
        params = {name: node.val() for name, node in nodes.items()}
        gradients = graph.params().grads()
        transformation = self.transformation()
        wide = any(node.value_type.is_wide for node in nodes.values())
        with jax.enable_x64(wide):
            if self._state is None:
                self._state, self._names = transformation.init(_wider(params)), tuple(params)
            elif self._names != tuple(params):
                changed = sorted(set(self._names) ^ set(params))
                raise GraphError(
                    f"the trainable parameters changed since the first update: {', '.join(changed)}; "
                    "call reset() to start with fresh moments"
                )
            rate = jnp.asarray(self.learn_rate, jnp.float64 if wide else jnp.float32)
        specs = tuple((name, node.spec) for name, node in nodes.items())
        key = ("update", type(self), self.hyperparameters(), specs)
        args = (params, gradients, self._state, rate)
        program = PROGRAMS.get(
            key,
            f"{type(self).__name__} update of {len(nodes)} parameters",
            _updater(transformation),
            args,
            device=graph.device,
            wide=wide,
        )
        updated, self._state, norm = program(*args)
        for name, value in updated.items():
            nodes[name].set_value(value)
        return float(norm)

    def reset(self) -> None:
        """Forget all moments, as at the start of training."""
        self._state = None


def _wider(tree: Any) -> Any:
    """16-bit floats as float32: moments, and an ``eps`` of 1e-8, do not fit into fewer bits."""
    return jax.tree.map(lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32)), tree)


def _updater(transformation: optax.GradientTransformation) -> Any:
    def step(params: Any, gradients: Any, state: Any, rate: Any) -> tuple[Any, Any, Any]:
        norm = optax.tree.norm(gradients)
        moves, state = transformation.update(_wider(gradients), state, _wider(params))
        params = jax.tree.map(lambda p, m: (p - rate * m).astype(p.dtype), params, moves)
        return params, state, norm

    return step


class Sgd(Optimizer):
    """``p -= eta * g``."""

    def direction(self) -> optax.GradientTransformation:
        return optax.identity()


class AdagradState(NamedTuple):
    """State of ``scale_by_adagrad``."""

    sum_of_squares: Any
    """Per parameter, of its shape."""


def scale_by_adagrad(eps: float) -> optax.GradientTransformation:
    """``G += g^2``; direction ``g / (sqrt(G) + eps)``. Optax's own puts ``eps`` under the root."""

    def init(params: Any) -> AdagradState:
        return AdagradState(jax.tree.map(jnp.zeros_like, params))

    def update(gradients: Any, state: AdagradState, params: Any = None) -> tuple[Any, AdagradState]:
        total = jax.tree.map(lambda s, g: s + g * g, state.sum_of_squares, gradients)
        moves = jax.tree.map(lambda g, s: g / (jnp.sqrt(s) + eps), gradients, total)
        return moves, AdagradState(total)

    return optax.GradientTransformation(init, update)


class Adagrad(Optimizer):
    """``G += g^2``, ``p -= eta / (sqrt(G) + eps) * g``. Source: Duchi et al. 2011."""

    def __init__(self, learn_rate: float, eps: float = 1e-8, clip_norm: float = 0.0) -> None:
        super().__init__(learn_rate, clip_norm)
        self.eps = float(eps)

    def direction(self) -> optax.GradientTransformation:
        return scale_by_adagrad(self.eps)


class Adam(Optimizer):
    """``m = b1 m + (1-b1) g``, ``v = b2 v + (1-b2) g^2``,
    ``p -= eta * ((m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + w p)``.

    ``decay`` is ``w``, the fourth of ``--optimizer-params`` (AdamW); as in Marian it acts on every
    parameter, biases and norms included. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019.
    """

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
        self.beta1, self.beta2, self.eps, self.decay = map(float, (beta1, beta2, eps, decay))

    def direction(self) -> optax.GradientTransformation:
        moments = optax.scale_by_adam(self.beta1, self.beta2, self.eps)
        return optax.chain(moments, optax.add_decayed_weights(self.decay)) if self.decay else moments
