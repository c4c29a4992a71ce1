"""JAX programs computed in decimals of sixty digits: their results before anything is rounded."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import exact_numbers as exact
from .numpy_primitives import ELEMENTWISE, OTHERS, Array, Primitive, cumulative, reduction, windowed
from .numpy_witness import Arithmetic, interpreted


class ExactProgram:
    """A JAX function of pytrees of arrays, traced once in float64, computed without rounding to float64.

    Called with arrays of the shapes it was traced for, it gives its results, rounded to float64 at the very
    end. They are the results of the formulas as traced: constants have their float64 values.
    ``NoReferenceError`` names a primitive that has no counterpart here. Operations have ``digits`` digits;
    with ``keeps_types``, what the program computes in a narrower type than float64 is rounded to that type.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *args: Any,
        digits: int = exact.DIGITS,
        keeps_types: bool = False,
    ) -> None:
        self._arithmetic = _EXACT._replace(held=_held_in_type) if keeps_types else _EXACT
        self._context = exact.CONTEXT.copy()
        self._context.prec = digits
        self._program, specs = jax.make_jaxpr(function, return_shape=True)(*args)
        self._structure = jax.tree.structure(specs)

    def __call__(self, *args: Any) -> Any:
        avals = self._program.in_avals
        leaves = [_held(a, v.dtype) for a, v in zip(jax.tree.leaves(args), avals, strict=True)]
        with localcontext(self._context), np.errstate(all="ignore"):
            found = interpreted(self._program, leaves, self._arithmetic)
            return jax.tree.unflatten(self._structure, [_rounded(f) for f in found])


def _held(value: Any, dtype: Any) -> Array:
    """Numbers of a floating point type as decimals, others as NumPy has them."""
    if not jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(value, dtype)
    return np.asarray(_AS_DECIMALS(np.asarray(value, object)), object)


def _held_in_type(value: Any, dtype: Any) -> Array:
    """Numbers as decimals, after rounding to a type that is narrower than float64."""
    if jnp.issubdtype(dtype, jnp.floating) and dtype != np.float64:
        value = _rounded(np.asarray(value)).astype(dtype).astype(np.float64)
    return _held(value, dtype)


def _rounded(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == object else array


def _each(function: Callable[..., Any], operands: int = 1) -> Any:
    """A function of numbers, applied to each element; one of two numbers can also reduce several axes."""
    return np.frompyfunc(function, operands, 1, identity=None)


_AS_DECIMALS = _each(lambda x: x if type(x) is Decimal else Decimal(float(x)))


def _or_plain(plain: Primitive, function: Primitive) -> Primitive:
    """``function`` for decimals, ``plain`` for integers and Booleans."""

    def computed(*args: Array, **params: Any) -> Array:
        chosen = function if any(a.dtype == object for a in args) else plain
        found: Array = chosen(*args, **params)
        return found

    return computed


def _ordered(chosen: Callable[..., Any]) -> Callable[..., Any]:
    """``min`` or ``max`` of two numbers, or NaN if one is."""
    return lambda x, y: x if x.is_nan() else y if y.is_nan() else chosen(x, y)


_LARGER, _SMALLER = _each(_ordered(max), 2), _each(_ordered(min), 2)

_FUNCTIONS: Mapping[str, Primitive] = {
    "clamp": lambda low, x, high: _SMALLER(_LARGER(x, low), high), "cos": _each(exact.cos),
    "div": _each(operator.truediv, 2), "erf": _each(exact.erf), "erfc": _each(exact.erfc),
    "exp": _each(Decimal.exp), "expm1": _each(exact.expm1), "is_finite": _each(Decimal.is_finite),
    "log": _each(Decimal.ln), "log1p": _each(exact.log1p), "logistic": _each(exact.logistic),
    "max": _LARGER, "min": _SMALLER, "pow": _each(exact.power, 2),
    "rsqrt": _each(lambda x: 1 / x.sqrt()), "sign": _each(exact.sign), "sin": _each(exact.sin),
    "sqrt": _each(Decimal.sqrt), "tan": _each(exact.tan), "tanh": _each(exact.tanh),
}  # fmt: skip
"""Functions that NumPy cannot compute with the operators of a decimal alone."""

_PLAIN = (
    "abs", "add", "add_any", "and", "copy", "copy_p", "eq", "ge", "gt", "le", "lt", "mul", "ne", "neg", "not",
    "one_minus_square", "or", "square", "stop_gradient", "sub", "xor",
)  # fmt: skip


def _dot(out: Any, *args: Any, **params: Any) -> Array:
    wide = SimpleNamespace(shape=out.shape, dtype=np.dtype(object))
    product: Array = OTHERS["dot_general"](wide, *args, **params)
    return product


def _round(_: Any, x: Array, *, rounding_method: Any, **__: Any) -> Array:
    even = rounding_method == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    found: Array = _each(lambda number: exact.to_nearest(number, even))(x)
    return found


def _converted(out: Any, x: Array, **_: Any) -> Array:
    return x if x.dtype == object and jnp.issubdtype(out.dtype, jnp.floating) else x.astype(out.dtype)


def _bits(out: Any, x: Array, **_: Any) -> Array:
    """The bits of float64 numbers as integers, or back."""
    found: Array = np.asarray(_rounded(x)).view(out.dtype)
    return found


def _polynomial(_: Any, x: Array, *coefficients: Array, **__: Any) -> Array:
    """A polynomial by Horner's rule, its coefficients from the lowest power to the highest."""
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _integer_power(_: Any, x: Array, *, y: int, **__: Any) -> Array:
    found: Array = _each(lambda number: exact.power(number, y))(x)
    return found


_EXACT = Arithmetic(
    elementwise={
        **{name: ELEMENTWISE[name] for name in _PLAIN},
        **{name: _or_plain(ELEMENTWISE[name], function) for name, function in _FUNCTIONS.items()},
    },
    others={
        **OTHERS,
        "bitcast_convert_type": _bits,
        "convert_element_type": _converted,
        "cumlogsumexp": cumulative(_each(exact.log_add_exp, 2).accumulate),
        "dot_general": _dot,
        "empty2": lambda out, **_: np.zeros(out.shape),
        "integer_pow": _integer_power,
        "polynomial": _polynomial,
        "reduce_max": reduction(_or_plain(np.max, _LARGER.reduce)),
        "reduce_min": reduction(_or_plain(np.min, _SMALLER.reduce)),
        "reduce_window_sum": windowed(np.sum, Decimal(0)),
        "round": _round,
    },
    held=_held,
)
