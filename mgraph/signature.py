"""``Signature``: names, shapes and element types of what a function takes, and how it returns its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .arrays import as_array, described, holds_numbers
from .draws import RowsKey
from .errors import ArgumentError, ElementTypeError, GraphError, ShapeError
from .leaves import check_value
from .names import with_article
from .places import here
from .recording import is_node
from .specs import Spec, holds_keys
from .types import Type

Inputs = Sequence[Any] | Mapping[str, Any]

_NO_ARRAYS = (jax.ShapeDtypeStruct, Type, type, np.ma.MaskedArray)
"""What is refused although it may have a ``dtype``; JAX would ignore the mask of a masked array."""


@dataclass(frozen=True)
class Signature:
    """The arguments of a function of a graph, and their checks."""

    inputs: Mapping[str, Spec]
    """In the order of positional arguments."""
    parameters: Mapping[str, Spec]
    single: bool
    """Whether the result is one array rather than a tuple."""
    random: bool
    wide: bool
    """Whether there are 64-bit types."""

    def checked_parameters(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that the function needs, checked to be present and of the right shape and type."""
        if not isinstance(params, Mapping):
            raise ArgumentError(
                f"pure expects a dictionary of parameters first, got {described(params)}{here()}"
            )
        missing = [name for name in self.parameters if name not in params]
        if missing:
            raise GraphError(f"missing parameters: {', '.join(missing)}")
        return {
            name: fitting(f"parameter {name!r}", params[name], spec) for name, spec in self.parameters.items()
        }

    def of_call(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, positional in the order of ``inputs`` or by name; none may be traced."""
        inputs = self.checked_inputs(self._by_name(args, named) if args else named)
        for value in inputs.values():
            if isinstance(value, jax.core.Tracer):
                raise GraphError(
                    "this function is compiled already and cannot be transformed by JAX; "
                    "inside jax.jit, jax.grad or jax.vmap call fn.pure(params, inputs, key)"
                )
        return inputs

    def check_pure(self, key: Any) -> None:
        """Errors for a missing key, for a value that is not a key, and for 64-bit types if JAX cuts them."""
        if self.wide and jax.dtypes.canonicalize_dtype("float64") != "float64":
            raise ElementTypeError(
                "this function has 64-bit types, which JAX would truncate to 32; "
                "call it within jax.enable_x64(True)"
            )
        if not (key is None or isinstance(key, RowsKey) or _is_key(key)):
            raise ArgumentError(f"expected a random key such as jax.random.key(seed), got {described(key)}")
        if self.random and key is None:
            raise GraphError("this function has random nodes; pass key=jax.random.key(seed)")

    def _by_name(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by name; positional arguments belong to the first inputs."""
        names = list(self.inputs)
        if len(args) > len(names):
            raise GraphError(f"expected the inputs {names}, got {len(args)} arguments")
        given = dict(zip(names, args, strict=False))
        twice = given.keys() & named.keys()
        if twice:
            raise GraphError(f"input {sorted(twice)[0]!r} is given twice")
        return {**given, **named}

    def checked_inputs(self, inputs: Inputs) -> dict[str, Any]:
        """The inputs by name, checked: none missing or unknown, all of the right shape and element type."""
        if not isinstance(inputs, Mapping):
            if not isinstance(inputs, Sequence):
                raise ArgumentError(
                    f"expected the inputs {list(self.inputs)} as a list or by name, got {described(inputs)}"
                    f"{here()}"
                )
            if len(inputs) != len(self.inputs):
                raise GraphError(f"expected the inputs {list(self.inputs)}, got {len(inputs)} values")
            inputs = dict(zip(self.inputs, inputs, strict=True))
        if inputs.keys() != self.inputs.keys():
            missing = [name for name in self.inputs if name not in inputs]
            unknown = [name for name in inputs if name not in self.inputs]
            raise GraphError(
                f"expected the inputs {list(self.inputs)}; missing: {missing}, unknown: {unknown}"
            )
        return {name: fitting(f"input {name!r}", inputs[name], spec) for name, spec in self.inputs.items()}

    def formed(self, results: Sequence[Any]) -> Any:
        """The results as one array, or as a tuple of arrays."""
        return results[0] if self.single else tuple(results)


def fitting(what: str, value: Any, spec: Spec) -> Any:
    """``value`` as an array, checked for shape and element type; Python's numbers and lists of them are
    converted to the type, except fractions to integers."""
    if is_node(value):
        raise ArgumentError(f"{what} takes an array, got {with_article(value.type)} node; pass node.val()")
    if isinstance(value, _NO_ARRAYS):
        raise ArgumentError(f"{what} takes an array, got {described(value)}{here()}")
    if not hasattr(value, "dtype"):
        given, value = value, as_array(what, value)
        if not holds_numbers(value):  # before the shape: None and strings become arrays of shape ()
            raise ArgumentError(f"{what} takes an array of numbers, got {described(given)}{here()}")
        if spec.type.is_float or value.dtype.kind != "f":
            check_value(what, spec, value)
            value = value.astype(spec.type.dtype)
    if tuple(value.shape) != spec.shape:
        raise ShapeError(f"{what} has shape {spec.shape}, got {tuple(value.shape)}")
    if value.dtype != spec.type.dtype:
        integers = value.dtype.kind in "iu" and spec.type.dtype.kind in "iu"  # such as ids in JAX's int32
        hint = f"; pass it as .astype({spec.type.value!r})" if integers else ""
        raise ElementTypeError(f"{what} has element type {spec.type}, got {value.dtype}{hint}")
    return value


def _is_key(value: Any) -> bool:
    """Whether ``value`` is one random key, or the words of a key, as from ``jax.random.PRNGKey``."""
    if not isinstance(value, np.ndarray | jax.Array):
        return False
    if holds_keys(value):
        return value.ndim == 0
    return value.dtype == np.uint32 and value.ndim == 1
