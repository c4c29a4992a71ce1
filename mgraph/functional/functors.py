"""Functors: functions of arrays written as expressions of placeholders, such as ``_1 * cos(_2)``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NoReturn

import jax.numpy as jnp
from jax import Array

from ..errors import ArgumentError
from ..node import Node

_COMPARISON, _OR, _AND, _SUM, _PRODUCT, _SIGN, _ATOM = range(7)
"""The precedence of Python's operators, weakest first."""


@dataclass(frozen=True)
class Formula:
    """A formula over arrays that a functor applies to its operands, and how it is written."""

    name: str
    formula: Callable[..., Any]
    strength: int = _ATOM


def function(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for a formula over arrays: given a placeholder or a functor it makes a functor, given only
    arrays or numbers it computes immediately."""
    return _applying(Formula(formula.__name__, formula))


def operator(symbol: str, strength: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Like ``function``, for a formula that is written with a Python operator."""
    return lambda formula: _applying(Formula(symbol, formula, strength))


def unary(name: str, of_jax: Callable[[Any], Any], page: str) -> Callable[..., Any]:
    """A JAX function of one array under Marian's name, with the docstring ``page``."""
    return function(_named(name, page, lambda x: of_jax(x)))


def binary(
    name: str, of_jax: Callable[[Any, Any], Any], page: str, symbol: str = "", strength: int = _ATOM
) -> Callable[..., Any]:
    """Like ``unary``, for two arrays; the function may be written with a Python operator."""
    return operator(symbol or name, strength)(_named(name, page, lambda x, y: of_jax(x, y)))


def _comparison(name: str, of_jax: Callable[[Any, Any], Any], symbol: str) -> Callable[..., Any]:
    page = f"1 where ``x {symbol} y``, else 0."
    return binary(name, lambda x, y: _number(of_jax(x, y), x, y), page, symbol, _COMPARISON)


def _named(name: str, page: str, formula: Callable[..., Any]) -> Callable[..., Any]:
    formula.__name__ = formula.__qualname__ = name
    formula.__doc__ = page
    return formula


def _applying(what: Formula) -> Callable[..., Any]:
    count = len(inspect.signature(what.formula).parameters)

    @functools.wraps(what.formula)
    def apply(*operands: Any) -> Any:
        if len(operands) != count:
            raise ArgumentError(f"{what.name} takes {count} operands, got {len(operands)}")
        if any(isinstance(x, Functor) for x in operands):
            functors = tuple(_as_functor(what.name, x) for x in operands)
            return Application(max(x.arity for x in functors), what, functors)
        return what.formula(*[as_array(what.name, x) for x in operands])

    return apply


def _number(truth: Any, *operands: Any) -> Any:
    """1 for true and 0 for false, in the operands' type."""
    return truth.astype(jnp.result_type(*operands))


plus = binary("plus", jnp.add, "``x + y``.", "+", _SUM)
minus = binary("minus", jnp.subtract, "``x - y``.", "-", _SUM)
mult = binary("mult", jnp.multiply, "``x * y``.", "*", _PRODUCT)
div = binary("div", jnp.divide, "``x / y``.", "/", _PRODUCT)
pow = binary("pow", jnp.power, "``x`` to the power of ``y``.")
eq = _comparison("eq", jnp.equal, "==")
neq = _comparison("neq", jnp.not_equal, "!=")
gt = _comparison("gt", jnp.greater, ">")
lt = _comparison("lt", jnp.less, "<")
geq = _comparison("geq", jnp.greater_equal, ">=")
leq = _comparison("leq", jnp.less_equal, "<=")


@operator("-", _SIGN)
def neg(x: Any) -> Any:
    """``-x``."""
    return jnp.negative(x)


@operator("~", _SIGN)
def negate(x: Any) -> Any:
    """1 where ``x`` is 0, else 0: Marian's ``!x``."""
    return _number(jnp.equal(x, 0), x)


@operator("&", _AND)
def and_(x: Any, y: Any) -> Any:
    """1 where neither is 0, else 0: Marian's ``x && y``."""
    return _number(jnp.not_equal(x, 0) & jnp.not_equal(y, 0), x, y)


@operator("|", _OR)
def or_(x: Any, y: Any) -> Any:
    """1 where one of the two is not 0, else 0: Marian's ``x || y``."""
    return _number(jnp.not_equal(x, 0) | jnp.not_equal(y, 0), x, y)


Method = Callable[[Any, Any], Any]


def _both_sides(apply: Callable[..., Any]) -> tuple[Method, Method]:
    """The methods for an operator with a functor on its left and with one on its right."""

    def left(self: Any, other: Any) -> Any:
        return apply(self, other)

    def right(self: Any, other: Any) -> Any:
        return apply(other, self)

    return left, right


class Functor:
    """A function of arrays written with placeholders; immutable.

    ``(_1 * cos(_2))(adj, x)`` is ``adj * jnp.cos(x)``: ``_1`` stands for the first argument, ``_2`` for the
    second. Numbers stand for themselves. ``~ & |`` are Marian's ``! && ||``; they and comparisons give 1
    and 0, in the arrays' type. A functor takes as many arrays as the number of its highest placeholder;
    ``ArgumentError`` if it is called with fewer or more.
    """

    __slots__ = ()
    __array_ufunc__ = None  # numpy's arrays and numbers leave operators to the methods below

    arity: int
    """How many arrays the functor takes."""

    def evaluate(self, arrays: Sequence[Array]) -> Any:
        """The value for ``arrays``, whose number the caller has checked."""
        raise NotImplementedError

    def __call__(self, *arrays: Any) -> Array:
        if len(arrays) != self.arity:
            raise ArgumentError(f"the functor {self!r} takes {self.arity} arrays, got {len(arrays)}")
        return self.evaluate([as_array(repr(self), a) for a in arrays])

    __add__, __radd__ = _both_sides(plus)
    __sub__, __rsub__ = _both_sides(minus)
    __mul__, __rmul__ = _both_sides(mult)
    __truediv__, __rtruediv__ = _both_sides(div)
    __pow__, __rpow__ = _both_sides(pow)
    __and__, __rand__ = _both_sides(and_)
    __or__, __ror__ = _both_sides(or_)
    __lt__, __gt__ = _both_sides(lt)[0], _both_sides(gt)[0]
    __le__, __ge__ = _both_sides(leq)[0], _both_sides(geq)[0]

    def __eq__(self, other: object) -> Any:
        return eq(self, other)

    def __ne__(self, other: object) -> Any:
        return neq(self, other)

    __hash__ = object.__hash__

    def __neg__(self) -> Functor:
        return neg(self)

    def __invert__(self) -> Functor:
        return negate(self)

    def __bool__(self) -> NoReturn:
        raise ArgumentError(
            f"the functor {self!r} is neither true nor false; write & | ~ for && || !, and take max, min and "
            "the like from mgraph.functional"
        )


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Placeholder(Functor):
    """``_1`` to ``_9``: the first to the ninth array."""

    arity: int

    def evaluate(self, arrays: Sequence[Array]) -> Any:
        return arrays[self.arity - 1]

    def __repr__(self) -> str:
        return f"_{self.arity}"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Capture(Functor):
    """A number in a functor."""

    arity: int
    value: float

    def evaluate(self, arrays: Sequence[Array]) -> Any:
        return self.value

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Application(Functor):
    """A function applied to functors."""

    arity: int
    function: Formula
    operands: tuple[Functor, ...]

    def evaluate(self, arrays: Sequence[Array]) -> Any:
        return self.function.formula(*[x.evaluate(arrays) for x in self.operands])

    def __repr__(self) -> str:
        name, strength = self.function.name, self.function.strength
        if strength == _ATOM:
            return f"{name}({', '.join(map(repr, self.operands))})"
        if strength == _SIGN:
            return name + _written(self.operands[0], _SIGN)
        # a - b - c is (a - b) - c, but a < b < c is not (a < b) < c.
        left = strength + (strength == _COMPARISON)
        return f"{_written(self.operands[0], left)} {name} {_written(self.operands[1], strength + 1)}"


def _written(x: Functor, least: int) -> str:
    """``x`` as an operand, in parentheses if it binds weaker than ``least``."""
    strength = _ATOM
    if isinstance(x, Application):
        strength = x.function.strength
    elif isinstance(x, Capture) and x.value < 0:
        strength = _SIGN
    return repr(x) if strength >= least else f"({x!r})"


def _as_functor(name: str, x: Any) -> Functor:
    if isinstance(x, Functor):
        return x
    if isinstance(x, Real):
        return Capture(0, int(x) if isinstance(x, Integral) else float(x))
    raise ArgumentError(
        f"{name}: a functor is made of placeholders and numbers, got {type(x).__name__}; pass arrays "
        "when you call it"
    )


def as_array(what: str, x: Any) -> Array:
    """``x`` as an array; ``ArgumentError`` for a node, which has no value while a graph is recorded."""
    if isinstance(x, Node):
        raise ArgumentError(f"{what}: mgraph.functional is for arrays, got a node; use operators of mgraph")
    return jnp.asarray(x)


_1, _2, _3, _4, _5, _6, _7, _8, _9 = (Placeholder(n) for n in range(1, 10))
