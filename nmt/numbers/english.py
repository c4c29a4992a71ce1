"""English number words."""

from __future__ import annotations

from nmt.numbers.domain import check

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def english(number: int) -> str:
    """Write a number from 0 to 999,999 in English words.

    The American form, without "and", tens and units joined by a hyphen: 72,411 is
    "seventy-two thousand four hundred eleven".

    Raises TypeError or ValueError for what is not such a number.
    """
    thousands, rest = divmod(check(number), 1000)
    if not thousands:
        return _below_thousand(rest)
    head = f"{_below_thousand(thousands)} thousand"
    return f"{head} {_below_thousand(rest)}" if rest else head


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _below_hundred(rest)
    head = f"{_SMALL[hundreds]} hundred"
    return f"{head} {_below_hundred(rest)}" if rest else head


def _below_hundred(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    tens, unit = divmod(number, 10)
    return f"{_TENS[tens - 2]}-{_SMALL[unit]}" if unit else _TENS[tens - 2]
