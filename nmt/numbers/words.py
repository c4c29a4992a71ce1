"""Number words from 0 to 999,999, in English and German."""

from __future__ import annotations

LIMIT = 1_000_000
"""The numbers are 0 <= n < LIMIT."""
_ENGLISH_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_GERMAN_SMALL = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
_GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def check(number: int) -> int:
    """Return ``number`` if the task covers it.

    Raises TypeError for anything but an int and ValueError for an int outside 0 to 999,999.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"expected a whole number (int), got {number!r}")
    if not 0 <= number < LIMIT:
        raise ValueError(f"expected a number from 0 to {LIMIT - 1}, got {number}")
    return number


def english(number: int) -> str:
    """Write a number from 0 to 999,999 in English words.

    The American form, without "and", tens and units joined by a hyphen: 72,411 is
    "seventy-two thousand four hundred eleven".

    Raises TypeError or ValueError for any other value.
    """
    thousands, rest = divmod(check(number), 1000)
    if not thousands:
        return _english_below_thousand(rest)
    head = f"{_english_below_thousand(thousands)} thousand"
    return f"{head} {_english_below_thousand(rest)}" if rest else head


def _english_below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _english_below_hundred(rest)
    head = f"{_ENGLISH_SMALL[hundreds]} hundred"
    return f"{head} {_english_below_hundred(rest)}" if rest else head


def _english_below_hundred(number: int) -> str:
    if number < 20:
        return _ENGLISH_SMALL[number]
    tens, unit = divmod(number, 10)
    return f"{_ENGLISH_TENS[tens - 2]}-{_ENGLISH_SMALL[unit]}" if unit else _ENGLISH_TENS[tens - 2]


def german(number: int) -> str:
    """Write a number from 0 to 999,999 in German words.

    One word, in the full form: 100 is "einhundert", 1,000 is "eintausend", and no "und" after
    hundreds or thousands. One is "eins" only at the end of the word (101 is "einhunderteins"),
    "ein" before anything else (21 is "einundzwanzig", 101,000 is "einhunderteintausend").
    72,411 is "zweiundsiebzigtausendvierhundertelf".

    Raises TypeError or ValueError for any other value.
    """
    thousands, rest = divmod(check(number), 1000)
    word = f"{_german_below_thousand(thousands)}tausend" if thousands else ""
    if rest or not thousands:
        word += _german_below_thousand(rest)
    return f"{word}s" if rest % 100 == 1 else word


def _german_below_thousand(number: int) -> str:
    """The word as it stands before "tausend", with "ein" for a final one."""
    hundreds, rest = divmod(number, 100)
    word = f"{_GERMAN_SMALL[hundreds]}hundert" if hundreds else ""
    return word + _german_below_hundred(rest) if rest or not hundreds else word


def _german_below_hundred(number: int) -> str:
    if number < 20:
        return _GERMAN_SMALL[number]
    tens, unit = divmod(number, 10)
    return f"{_GERMAN_SMALL[unit]}und{_GERMAN_TENS[tens - 2]}" if unit else _GERMAN_TENS[tens - 2]
