"""What names mean while a table is read: the sizes that a part binds, then the options of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from nmt.settings.model_options import ModelOptions

Size = int | str
"""A number, or a product of numbers, names, and elements of lists of names: ``2 * dim-rnn``."""

TRAINING = {"transformer-depth-scaling": False, "transformer-train-positions": False, "max-length": 50}
"""Options that Marian reads and does not write into its models, with its defaults."""

_ELEMENT = re.compile(r"([a-z-]+)\[(-?[0-9]+)\]")


@dataclass(frozen=True)
class Scope:
    """The meaning of names at one place of a model.

    options: of the model. names: of the parameters in its file, if there is one. prefix: of the parameters
    here. bound: what parts on the way here have bound. texts: how they said it. numbers: how a repeated
    part's number is written in names, where that differs.
    """

    options: ModelOptions
    names: Collection[str] = ()
    prefix: str = ""
    bound: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        if name in self.bound:
            return self.bound[name]
        if name in self.options:
            return self.options[name]
        return TRAINING[name]

    def size(self, size: Size) -> Any:
        """The value of ``size``; an option that is no number only stands alone."""
        if isinstance(size, int):
            return size
        factors = [self._factor(factor) for factor in size.split(" * ")]
        return factors[0] if len(factors) == 1 else math.prod(factors)

    def text(self, size: Size) -> str:
        """``size`` in the names that the user knows, those of options: ``2 * dim-rnn``."""
        number, names = 1, []
        for factor in str(size).split(" * "):
            text = self.texts.get(factor, factor)
            if text != factor:
                text = self.text(text)
            *digits, name = text.split(" * ")
            if name.isdecimal():
                number *= int(name)
            else:
                names.append(name)
            number *= math.prod(map(int, digits))
        return " * ".join([*([str(number)] if number != 1 or not names else []), *names])

    def named(self, pattern: str) -> str:
        """``pattern`` with the numbers of the repeated parts around here."""
        return pattern.format_map({**self.bound, **self.numbers})

    def _factor(self, factor: str) -> Any:
        if factor.isdecimal():
            return int(factor)
        element = _ELEMENT.fullmatch(factor)
        if not element:
            return self[factor]
        name, index = element.groups()
        return self[name][int(index)]


def joined(prefix: str, name: str) -> str:
    """A parameter's or a part's name under a prefix."""
    return "_".join(filter(None, (prefix, name)))
