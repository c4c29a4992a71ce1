"""Amounts of training with a unit, as ``--save-freq 10Ku`` has them."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from nmt.settings.option import OptionError

_AMOUNT = re.compile(r"\+?([0-9.,]+(?:[eE][+-]?[0-9]+)?)([kKMGT]?)([tue]?)")
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_EXPECTED = (
    "expected a whole number, optionally with K, M, G or T, then optionally u (updates), t (target words) or "
    "e (epochs)"
)


class Unit(Enum):
    """What training is measured in."""

    UPDATES = "u"
    LABELS = "t"
    EPOCHS = "e"


class Progress(NamedTuple):
    """So many updates, target labels or epochs; in words (``str``) as Marian writes them: ``10000u``."""

    n: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.n}{self.unit.value}"


NEVER = Progress(0, Unit.UPDATES)
"""What stands for no amount at all."""


def progress(text: str, option: str) -> Progress:
    """The amount that a text stands for: ``10Ku`` updates, ``20Gt`` labels, ``3e`` epochs, ``1000`` updates.

    Parameters:
        text: a number, with or without commas and an exponent; optionally a factor ``K`` (or ``k`` before a
            unit), ``M``, ``G`` or ``T``, with which it must be whole; optionally a unit, without one updates.
        option: what the text is the value of, for the error.

    Raises OptionError naming the option.

    Source: Marian's values "with units", such as ``--after`` and ``--lr-warmup``.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or text.strip().endswith("k"):
        raise OptionError(f"{option}: {_EXPECTED}; got '{text}'")
    digits, factor, unit = match.groups()
    try:
        number = _FACTORS[factor] * float(digits.replace(",", ""))
    except ValueError:
        raise OptionError(f"{option}: {_EXPECTED}; got '{text}'") from None
    if number >= 2**63 or number != int(number):
        raise OptionError(f"{option}: {_EXPECTED}; got '{text}'")
    return Progress(int(number), Unit(unit or "u"))


def period(text: str, option: str) -> Progress:
    """The same for how often something is done, which Marian does not count in epochs: OptionError if so."""
    amount = progress(text, option)
    if amount.unit is Unit.EPOCHS:
        raise OptionError(f"{option}: expected updates (u) or target words (t), got epochs: '{text}'")
    return amount
