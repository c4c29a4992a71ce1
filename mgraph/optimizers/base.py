"""The base of optimizers: an update is an optax transformation over the parameters of a graph."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import keystr

from ..arrays import described, numbers
from ..errors import ArgumentError, GraphError
from ..graph import ExpressionGraph
from ..names import with_article
from ..places import here
from ..running.programs import Plan, compiled
from ..running.stored import register_tuple
from ..specs import is_real


class Setting:
    """A number of an optimizer, at least 0 and less than ``below``; ``ArgumentError`` for any other value,
    whenever it is set."""

    def __init__(self, below: float = math.inf) -> None:
        self._below = below

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, optimizer: None, owner: type) -> Setting: ...
    @overload
    def __get__(self, optimizer: Optimizer, owner: type) -> float: ...
    def __get__(self, optimizer: Optimizer | None, owner: type) -> Setting | float:
        return self if optimizer is None else vars(optimizer)[self._name]

    def __set__(self, optimizer: Optimizer, value: float) -> None:
        vars(optimizer)[self._name] = setting(self._name.replace("_", " "), value, self._below)


def setting(name: str, value: Any, below: float = math.inf) -> float:
    """A setting of an optimizer; ``ArgumentError`` unless it is at least 0 and less than ``below``."""
    try:
        number = float(value) if hasattr(value, "__float__") else math.nan
    except (TypeError, ValueError, OverflowError):  # e.g. for an array, or a value that JAX is tracing
        number = math.nan
    if not 0 <= number < below:
        limit = "a finite number" if below == math.inf else f"less than {below:g}"
        raise ArgumentError(f"expected {with_article(name)} of at least 0 and {limit}, got {value!r}{here()}")
    return number


class Optimizer(ABC):
    """Base of the optimizers: gradients are clipped by their global norm, transformed, and added.

    ``learn_rate`` may be changed between updates without recompiling. The gradients of an update are scaled
    so that their L2 norm over all parameters is at most ``clip_norm``; 0 is off. ``ArgumentError`` for a
    setting that is not a number of at least 0. A copy, for instance by ``pickle``, continues from the same
    moments.
    """

    clip_norm = Setting()

    def __init__(self, learn_rate: float, clip_norm: float = 0.0) -> None:
        if callable(learn_rate):
            raise ArgumentError(
                f"expected a number as learning rate, got {learn_rate!r}: before each update, set learn_rate "
                f"to what a schedule gives{here()}"
            )
        self.learn_rate = setting("learning rate", learn_rate)
        self.clip_norm = clip_norm
        self._state: Any = None
        self._specs: tuple[tuple[str, Any], ...] = ()

    @abstractmethod
    def transformation(self, learn_rate: Any) -> optax.GradientTransformation:
        """The transformation of clipped gradients into what is added to the parameters, for any optax loop.

        learn_rate: a number, or an array of shape (), so that programs can take it as an argument.
        """

    def __repr__(self) -> str:
        own = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if name[0] != "_")
        return f"{type(self).__name__}({own})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_state": self.state, "_specs": ()}

    @property
    def state(self) -> Any:
        """All moments after the last update, to be saved: the tree that ``init`` makes, with NumPy arrays;
        ``None`` before the first update. After an assignment the next update continues from the assigned
        state, or raises ``ArgumentError`` if it does not fit the graph's parameters."""
        return jax.tree.map(np.array, self._state)

    @state.setter
    def state(self, state: Any) -> None:
        self._state, self._specs = state, ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What ``transformation`` depends on, as part of the compiled update's key: all public attributes
        except the learning rate. ``ArgumentError`` for a value that cannot be hashed."""
        own = sorted(item for item in vars(self).items() if item[0][0] != "_" and item[0] != "learn_rate")
        for name, value in own:
            try:
                hash(value)
            except TypeError:
                raise ArgumentError(
                    f"{self}.{name}: expected a number, a string or a tuple, got {described(value)}{here()}"
                ) from None
        return tuple(own)

    @property
    def needs_cost(self) -> bool:
        """Whether the moves depend on the cost, too."""
        return False

    def init(self, params: Any) -> Any:
        """The state before the first update."""
        return self.transformation(self.learn_rate).init(params)

    def moves(
        self, gradients: Any, state: Any, params: Any, learn_rate: Any, cost: Any = None
    ) -> tuple[Any, Any]:
        """What an update adds to the parameters, and the state after the update.

        cost: the value whose gradients these are, shape (); ``None`` if it is not known.
        """
        known = {} if cost is None else {"value": cost}
        transformation = optax.with_extra_args_support(self.transformation(learn_rate))
        moves, state = transformation.update(self.clipped(gradients), state, params, **known)
        return moves, state

    def clipped(self, gradients: Any) -> Any:
        """``g * clip_norm / norm`` where the L2 norm over all gradients is more than ``clip_norm``.

        Non-finite gradients stay non-finite. Source: Marian, ``--clip-norm``.
        """
        if not self.clip_norm:
            return gradients
        norm = optax.tree.norm(gradients)
        factor = jnp.where(norm > self.clip_norm, self.clip_norm / norm, 1)
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), gradients)

    def update(self, graph: ExpressionGraph, cost: Any = None) -> jax.Array:
        """Update the trainable parameters of ``graph`` from their gradients, as one compiled program.

        cost: the value of the top node, for optimizers that need it (``needs_cost``).
        Returns the L2 norm of the gradients before clipping, shape (). It does not wait for the device;
        reading the norm, ``float(norm)``, or a parameter does. ``GraphError`` before ``backward()``, without
        trainable parameters, and if others were trainable in the first update; ``ArgumentError`` if a needed
        cost is missing or no number, or if ``learn_rate`` is no number of at least 0.
        """
        if not isinstance(graph, ExpressionGraph):
            raise ArgumentError(f"expected update(graph), got {described(graph)}{here()}")
        if cost is None and self.needs_cost:
            raise ArgumentError(f"{self} needs the cost: expected update(graph, cost=top.val()), got no cost")
        if cost is not None and not (isinstance(cost, jax.Array) and is_real(cost)):
            cost = numbers("the cost of an update", cost)
        rate: Any = self.learn_rate
        known = isinstance(rate, jax.Array) and rate.shape == () and is_real(rate)
        if not known:  # reading one would wait for the device
            rate = setting("learning rate", rate)
        nodes = graph.params().trainable()
        if not nodes:
            raise GraphError("the graph has no trainable parameters to update")
        params = {name: node.val() for name, node in nodes.items()}
        gradients = graph.params().grads()
        wide = any(node.value_type.is_wide for node in nodes.values())
        specs = tuple((name, node.spec) for name, node in nodes.items())
        update = compiled(OptimizerUpdatePlan(self, specs), device=graph.device, wide=wide)
        with jax.enable_x64(wide):
            if not self._specs:
                self._state, self._specs = self._first_state(_wider(params)), specs
            elif self._specs != specs:
                changed = sorted({name for name, _ in {*self._specs} ^ {*specs}})
                raise GraphError(
                    f"the trainable parameters changed since the first update: {', '.join(changed)}; "
                    "call reset() to start with fresh moments"
                )
            rate = jnp.asarray(rate, jnp.float64 if wide else jnp.float32)
        updated, self._state, norm = update(params, gradients, self._state, rate, cost)
        for name, value in updated.items():
            nodes[name].assigned(value)
        return norm

    def _first_state(self, params: Any) -> Any:
        """The assigned or the initial state, copied to new buffers, because updates donate them."""
        if self._state is None:
            return jax.tree.map(jnp.array, self.init(params))
        trees = self._state, jax.eval_shape(self.init, params)
        got, want = ({keystr(path): _shaped(x) for path, x in jax.tree.leaves_with_path(t)} for t in trees)
        if got != want:
            name = min(name for name, _ in got.items() ^ want.items())
            problem = f"expected {want.get(name, 'none')}, got {got.get(name, 'none')}"
            raise ArgumentError(
                f"{self}: the assigned state does not belong to these parameters: {name}: {problem}{here()}"
            )
        return jax.tree.map(jnp.array, self._state)

    def reset(self) -> None:
        """Forget all moments, as at the start of training."""
        self.state = None

    def __str__(self) -> str:
        return type(self).__name__


def _shaped(leaf: Any) -> str:
    try:
        return f"{jnp.result_type(leaf)}{list(np.shape(leaf))}"
    except (TypeError, ValueError):  # no array
        return described(leaf)


def _wider(tree: Any) -> Any:
    """16-bit floats as float32: moments, and an ``eps`` of 1e-8, need the precision."""
    return jax.tree.map(lambda x: x.astype(np.promote_types(x.dtype, np.float32)), tree)


@dataclass(frozen=True)
class OptimizerUpdatePlan(Plan, by_key=["optimizer"]):
    """Computes new parameters and moments from gradients, and the gradients' norm."""

    optimizer: Optimizer
    specs: tuple[tuple[str, Any], ...]
    """Names and specs of the parameters."""

    @property
    def donated(self) -> tuple[int, ...]:
        return (2,)

    def __str__(self) -> str:
        return f"{self.optimizer} update of {len(self.specs)} parameters"

    def __call__(self, params: Any, gradients: Any, state: Any, rate: Any, cost: Any) -> tuple[Any, Any, Any]:
        gradients = _wider(gradients)
        norm = optax.tree.norm(gradients)
        total = None if cost is None else jnp.sum(cost)
        moves, state = self.optimizer.moves(gradients, state, _wider(params), rate, total)
        return moved(params, moves), state, norm


def moved(params: Any, moves: Any) -> Any:
    """``p + move`` for each parameter, in its element type."""
    return jax.tree.map(lambda p, move: (p + move).astype(p.dtype), params, moves)


@register_tuple
class OptimizerState(NamedTuple):
    """State of the transformations of Marian's and of optax's optimizers."""

    steps: Any
    """Updates since the initial state; int32, shape ()."""
    moments: dict[str, dict[str, Any]]
    """Running averages of the gradients and similar arrays, by moment and parameter. Moments are named as in
    ``.optimizer.npz``: with Marian's names, or those of ``Optax``."""
