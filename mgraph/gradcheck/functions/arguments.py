"""The arguments of a JAX function: the floating point leaves chosen for differentiation, and the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr

from ...errors import ArgumentError, ElementTypeError
from ...places import here
from ...specs import holds_keys, is_real


@dataclass(frozen=True)
class Arguments:
    """Positional arguments, pytrees, some of whose leaves are chosen for differentiation."""

    names: tuple[str, ...]
    """The names of the chosen leaves, as in code: ``params['w']``."""
    every: tuple[Any, ...]
    """All leaves."""
    chosen: tuple[int, ...]
    """Positions of the chosen leaves."""
    form: Any
    """The structure of the arguments."""

    @property
    def leaves(self) -> list[Any]:
        """The chosen leaves."""
        return [self.every[i] for i in self.chosen]

    def filled(self, leaves: Sequence[Any], widened: bool) -> tuple[Any, ...]:
        """The arguments with new values for the chosen leaves. The other floating point arrays are converted,
        too: if ``widened``, to float64, so that types do not mix; else to the type that JAX gives them."""
        element_type = np.float64 if widened else None
        every = [_kept(leaf, element_type) for leaf in self.every]
        for i, leaf in zip(self.chosen, leaves, strict=True):
            every[i] = leaf
        arguments: tuple[Any, ...] = jax.tree.unflatten(self.form, every)
        return arguments


def _kept(leaf: Any, element_type: Any) -> Any:
    """A leaf that is not chosen, for one call of the function."""
    if _is_array(leaf) and is_real(leaf):
        return jnp.asarray(leaf, element_type)
    # JAX remembers how it first converted a NumPy array of 64-bit numbers, but not for a copy.
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def are_shapes(args: Sequence[Any]) -> bool:
    """Whether arguments are shapes, as for a function of nodes: ints, or tuples or lists of ints."""
    return all(_is_size(a) or (isinstance(a, tuple | list) and all(map(_is_size, a))) for a in args)


def _is_size(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def arguments_of(
    function: Callable[..., Any], title: str, args: Sequence[Any], argnums: int | Sequence[int] | None
) -> Arguments:
    """Arguments split into leaves; ``argnums`` as in ``jax.grad``, ``None`` for all that are not static."""
    positions = _positions(function, title, len(args), argnums)
    paths, form = jax.tree_util.tree_flatten_with_path(tuple(args))
    names, chosen = [], []
    for i, (path, leaf) in enumerate(paths):
        if path[0].idx not in positions:
            continue
        name = _name(function, path[0].idx) + keystr(path[1:])
        if _is_float(title, name, leaf):
            names.append(name)
            chosen.append(i)
    if not chosen:
        listed = ", ".join(f"argument {i} ({described(args[i])})" for i in sorted(positions))
        among = f" among {listed}" if listed else ""
        raise ArgumentError(f"{title}: no floating point number{among} to differentiate by{here()}")
    return Arguments(tuple(names), tuple(leaf for _, leaf in paths), tuple(chosen), form)


def _positions(
    function: Callable[..., Any], title: str, count: int, argnums: int | Sequence[int] | None
) -> set[int]:
    if argnums is None:
        return set(range(count)) - set(getattr(function, "nondiff_argnums", ()))
    wanted: Any = [argnums] if _is_size(argnums) else argnums
    if not isinstance(wanted, Sequence) or not all(_is_size(i) and -count <= i < count for i in wanted):
        raise ArgumentError(
            f"{title}: argnums are positions among {count} arguments, got {argnums!r}{here()}"
        )
    return {int(i) % count for i in wanted}


def _is_float(title: str, name: str, leaf: Any) -> bool:
    """Whether the function can be differentiated with respect to a leaf."""
    if isinstance(leaf, jax.core.Tracer):
        raise ArgumentError(f"{title}: {name} is a tracer; gradients are checked outside of jax.jit{here()}")
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise ArgumentError(f"{title}: {name} is a shape without values, expected an array{here()}")
    if isinstance(leaf, complex) or (_is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.complexfloating)):
        raise ElementTypeError(
            f"{title}: {name} is complex; give real and imaginary parts, or choose others by argnums{here()}"
        )
    return isinstance(leaf, float) or (_is_array(leaf) and is_real(leaf))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic | jax.Array) and not is_key(leaf)


def is_key(value: Any) -> bool:
    """Whether a value is an array of random keys."""
    return hasattr(value, "dtype") and holds_keys(value)


def _name(function: Callable[..., Any], position: int) -> str:
    """The name of a positional parameter; ``args[1]`` where there is none."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for i, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return f"{parameter.name}[{position - i}]"
        if parameter.kind is parameter.KEYWORD_ONLY or i > position:
            break
        if i == position:
            return parameter.name
    return f"args[{position}]"


def described(tree: Any) -> str:
    """The leaves of a pytree in short: ``float32[3,4]``, or the type of a leaf that is not an array."""
    leaves = jax.tree.leaves(tree)
    shown = [
        f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" if hasattr(leaf, "shape") else type(leaf).__name__
        for leaf in leaves[:4]
    ]
    return ", ".join(shown + ["..."] * (len(leaves) > 4)) or "nothing"
