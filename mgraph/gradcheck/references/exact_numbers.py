"""Functions of one number, to some fifty digits and over a practically unlimited range.

``decimal`` has arithmetic, roots, exponentials and logarithms; the functions here are built from these. They
compute in the current context, which should be ``CONTEXT``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, localcontext

DIGITS = 60
"""Digits of every operation: 1 plus the smallest normal number of float32, 1e-38, keeps 22 digits of it."""

CONTEXT = Context(DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""In this context no number that element types can hold overflows; divisions by zero give infinities, or
NaN."""

_NAN, ONE = Decimal("NaN"), Decimal(1)
_HALF = Decimal("0.5")
_FLAT = 400
"""From here on ``tanh`` differs from 1 by less than any element type can represent."""
_SERIES = 6
"""Up to here ``erf`` is computed by its series, from here on ``erfc`` by its continued fraction."""
_FRACTIONS = 200


def log1p(x: Decimal) -> Decimal:
    return (ONE + x).ln()


def expm1(x: Decimal) -> Decimal:
    return x.exp() - ONE


def logistic(x: Decimal) -> Decimal:
    return ONE / (ONE + (-x).exp()) if x >= 0 else x.exp() / (ONE + x.exp())


def tanh(x: Decimal) -> Decimal:
    if not abs(x) <= _FLAT:
        return x if x.is_nan() else ONE.copy_sign(x)
    power = (-2 * abs(x)).exp()
    return ((ONE - power) / (ONE + power)).copy_sign(x)


def sin(x: Decimal) -> Decimal:
    """By the Taylor series, after reduction by whole quarter turns."""
    if not x.is_finite():
        return _NAN
    quarters, rest = _quarters(x)
    return (_sine, _cosine)[quarters % 2](rest) * (1 - quarters // 2 * 2)


def cos(x: Decimal) -> Decimal:
    if not x.is_finite():
        return _NAN
    quarters, rest = _quarters(x)
    return (_cosine, _sine)[quarters % 2](rest) * (1, -1, -1, 1)[quarters]


def tan(x: Decimal) -> Decimal:
    return sin(x) / cos(x)


def erf(x: Decimal) -> Decimal:
    return _erf_series(x) if abs(x) < _SERIES else ONE - erfc(x)


def erfc(x: Decimal) -> Decimal:
    if x.is_nan():
        return x
    if x < 0:
        return 2 - erfc(-x)
    if x < _SERIES:
        with localcontext() as context:
            context.prec += 20  # as many digits as are lost at the end of the series
            return ONE - _erf_series(x)
    fraction = x
    for k in range(_FRACTIONS, 0, -1):
        fraction = x + _HALF * k / fraction
    return (-x * x).exp() / (fraction * pi(DIGITS).sqrt())


def power(x: Decimal, y: Decimal | int) -> Decimal:
    """With ``x ** 0 = 1`` for every ``x``."""
    return x**y if y else ONE


def sign(x: Decimal) -> Decimal:
    return x if x.is_nan() or not x else ONE.copy_sign(x)


def to_nearest(x: Decimal, half_to_even: bool) -> Decimal:
    """Rounded to a whole number; halves to an even one, or away from zero."""
    return x.to_integral_value(ROUND_HALF_EVEN if half_to_even else ROUND_HALF_UP)


def log_add_exp(x: Decimal, y: Decimal) -> Decimal:
    low, high = min(x, y), max(x, y)
    return high if high.is_infinite() else high + log1p((low - high).exp())


@functools.cache
def pi(digits: int) -> Decimal:
    """By Machin's formula."""
    with localcontext(CONTEXT) as context:
        context.prec = digits + 10
        return 4 * (4 * _arctangent_of_inverse(5) - _arctangent_of_inverse(239))


def _arctangent_of_inverse(n: int) -> Decimal:
    return _summed(ONE / n, lambda term, k: -term / (n * n), lambda term, k: term / (2 * k + 1))


def _quarters(x: Decimal) -> tuple[int, Decimal]:
    """The number of quarter turns nearest to ``x``, modulo four, and what remains."""
    with localcontext() as context:
        context.prec += max(0, x.adjusted()) + 10
        quarter = pi(context.prec) / 2
        turned = (x / quarter).to_integral_value()
        return int(turned % 4) % 4, x - turned * quarter


def _sine(x: Decimal) -> Decimal:
    return _summed(x, lambda term, k: -term * x * x / (2 * k * (2 * k + 1)))


def _cosine(x: Decimal) -> Decimal:
    return _summed(ONE, lambda term, k: -term * x * x / (2 * k * (2 * k - 1)))


def _erf_series(x: Decimal) -> Decimal:
    """``2 / sqrt(pi) exp(-x^2) sum (2 x^2)^k x / (2 k + 1)!!``, whose terms are all of one sign."""
    total = _summed(x, lambda term, k: term * 2 * x * x / (2 * k + 1))
    return 2 * total * (-x * x).exp() / pi(DIGITS + 20).sqrt()


def _summed(
    first: Decimal,
    following: Callable[[Decimal, int], Decimal],
    part: Callable[[Decimal, int], Decimal] = lambda term, k: term,
) -> Decimal:
    """The sum of a series, up to the first term that does not change it."""
    total, term, k, before = first, first, 0, None
    while total != before:
        k, before = k + 1, total
        term = following(term, k)
        total += part(term, k)
    return total
