"""``Optax``: any optimizer of optax, by its name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..errors import ArgumentError
from ..specs import holds_keys
from .base import Optimizer, OptimizerState
from .optax_functions import check_arguments, named, optimizers, rate_of, shapes_of

REFUSED = {
    f"contrib.schedule_free_{name}": "it trains other parameters than those that are used afterwards"
    for name in ("adamw", "sgd")
}
"""Optimizers that run but are of no use here, and why."""
HINTS = {"lbfgs": "; it can do without a line search: linesearch none"}
"""What to do if an optimizer does not work."""
PROBE = {"v": jax.ShapeDtypeStruct((4,), np.float32), "w": jax.ShapeDtypeStruct((2, 3), np.float32)}
"""Parameters on which an optimizer is tried. Their first axes differ, so that an optimizer fails
that expects gradients per sentence, which would share their first axis."""
NUMBER = jax.ShapeDtypeStruct((), np.float32)


class Optax(Optimizer):
    """An optimizer of optax: ``Optax("lion", 1e-4, b1=0.95)``, ``Optax("contrib.muon", 0.02)``.

    name: the function in ``optax`` that makes it. arguments: this function's arguments, except the learning
    rate. The learning rate is an argument of the compiled update, which calls the function with it: an update
    is that of an optax loop at the present rate. ``rprop`` uses only the first rate.

    The state is an ``OptimizerState``. Each array of optax's state is one of the ``moments``, under its path
    in optax's state and the name of its parameter: ``moments["optax.adam.0.mu"]["W"]``. The name is empty if
    the array belongs to no parameter: ``moments["optax.adam.0.count"][""]``. Keys of random generators are
    stored as integers.

    ``ArgumentError`` for unknown names and arguments, and for optimizers that need more than gradients and
    cost.
    """

    def __init__(
        self, name: str, learn_rate: float | None = None, clip_norm: float = 0.0, **arguments: Any
    ) -> None:
        if not isinstance(name, str):
            raise ArgumentError(
                f"expected the name of an optimizer of optax, such as 'lion', got {name!r:.80}; "
                "each update calls its function with the learning rate: Optax('lion', 1e-4)"
            )
        if learn_rate is None:
            raise ArgumentError(f"expected a learning rate, too: Optax({name!r}, 1e-4)")
        super().__init__(learn_rate, clip_norm)
        self.name = name
        self.arguments = tuple(sorted(arguments.items()))
        self._function = named("optimizer", name, optimizers())
        if name in REFUSED:
            raise ArgumentError(f"{self} is not supported: {REFUSED[name]}")
        check_arguments(str(self), self._function, arguments)
        try:
            hash(self.arguments)
        except TypeError as error:
            raise ArgumentError(f"{self}: expected arguments that can be compared, got an {error}") from None
        hint = HINTS.get(name, "")
        shapes_of(str(self), self._first_update, PROBE, NUMBER, NUMBER, hint=hint)
        self._needs_cost = False
        try:
            shapes_of(str(self), self._first_update, PROBE, NUMBER)
        except ArgumentError:
            self._needs_cost = True

    @property
    def needs_cost(self) -> bool:
        return self._needs_cost

    def transformation(self, learn_rate: Any) -> optax.GradientTransformation:
        rate = {rate_of(self._function): learn_rate}
        own = optax.with_extra_args_support(self._function(**rate, **dict(self.arguments)))

        def init(params: Any) -> OptimizerState:
            moments = self._by_name(own.init(params), jax.eval_shape(own.init, params), params)
            return OptimizerState(jnp.zeros((), jnp.int32), moments)

        def update(gradients: Any, state: OptimizerState, params: Any = None, **known: Any) -> Any:
            specs = jax.eval_shape(own.init, params)
            moves, after = own.update(gradients, self._in_tree(state.moments, specs, params), params, **known)
            return moves, OptimizerState(state.steps + 1, self._by_name(after, specs, params))

        return optax.GradientTransformationExtraArgs(init, update)

    def __str__(self) -> str:
        return f"optax.{self.name}"

    def _first_update(self, params: Any, learn_rate: Any, cost: Any = None) -> Any:
        return self.moves(params, self.init(params), params, learn_rate, cost)

    def _by_name(self, tree: Any, specs: Any, params: Any) -> dict[str, dict[str, Any]]:
        """The arrays of optax's state by their names, with the types of the initial state."""
        moments: dict[str, dict[str, Any]] = {}
        for (path, leaf), spec in zip(jax.tree.leaves_with_path(tree), jax.tree.leaves(specs), strict=True):
            moment, parameter = self._name(path, params)
            # A copy, because optax's state may hold the parameters, and the buffers of both are donated.
            array = jax.random.key_data(leaf) if holds_keys(spec) else jnp.array(leaf, spec.dtype)
            moments.setdefault(moment, {})[parameter] = array
        return moments

    def _in_tree(self, moments: dict[str, dict[str, Any]], specs: Any, params: Any) -> Any:
        """The inverse of ``_by_name``."""

        def found(path: Any, spec: Any) -> Any:
            moment, parameter = self._name(path, params)
            array = moments[moment][parameter]
            return jax.random.wrap_key_data(array) if holds_keys(spec) else array

        return jax.tree.map_with_path(found, specs)

    def _name(self, path: Any, params: Any) -> tuple[str, str]:
        """The moment and the parameter of the array at this path in optax's state."""
        last = path[-1] if path else None
        parameter = last.key if isinstance(last, jax.tree_util.DictKey) and last.key in params else ""
        rest = jax.tree_util.keystr(path[:-1] if parameter else path, simple=True, separator=".")
        return f"{self}.{rest}".removesuffix("."), parameter
