"""German number words."""

from __future__ import annotations

from nmt.numbers.domain import check

_SMALL = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def german(number: int) -> str:
    """Write a number from 0 to 999,999 in German words.

    One word, in the full form: 100 is "einhundert", 1,000 is "eintausend", and no "und" after
    hundreds or thousands. One is "eins" only at the end of the word (101 is "einhunderteins"),
    "ein" before anything else (21 is "einundzwanzig", 101,000 is "einhunderteintausend").
    72,411 is "zweiundsiebzigtausendvierhundertelf".

    Raises TypeError or ValueError for what is not such a number.
    """
    thousands, rest = divmod(check(number), 1000)
    word = f"{_below_thousand(thousands)}tausend" if thousands else ""
    if rest or not thousands:
        word += _below_thousand(rest)
    return f"{word}s" if rest % 100 == 1 else word


def _below_thousand(number: int) -> str:
    """The word as it stands before "tausend", with "ein" for a final one."""
    hundreds, rest = divmod(number, 100)
    word = f"{_SMALL[hundreds]}hundert" if hundreds else ""
    return word + _below_hundred(rest) if rest or not hundreds else word


def _below_hundred(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    tens, unit = divmod(number, 10)
    return f"{_SMALL[unit]}und{_TENS[tens - 2]}" if unit else _TENS[tens - 2]
