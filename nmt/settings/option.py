"""Marian's command-line options: one table for the command line, configuration files and Python.

Names, meanings and defaults are Marian's. Each option is read by the same rule wherever it comes
from, and a known option that is not supported yet is refused by name, unless it is given its
default (a configuration dumped by Marian holds every option there is).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import yaml

from mgraph.errors import ArgumentError, MGraphError
from mgraph.files.paths import path_text
from nmt.settings import yaml_text
from nmt.settings.aliases import Alias, Given, Source, expanded

TRUE = ("true", "on", "yes", "1")
FALSE = ("false", "off", "no", "0")
MOST_WHOLE = (1 << 64) - 1
MOST_REAL = float(np.finfo(np.float32).max)
"""The largest numbers that Marian knows."""


class OptionError(MGraphError, ValueError):
    """An option is unknown, not supported yet, or has a value that it cannot take."""


class Support(Enum):
    """What becomes of an option."""

    YES = "works as in Marian"
    LATER = "is Marian's, and not supported yet"
    IGNORED = "is accepted and changes nothing here"


@dataclass(frozen=True, slots=True)
class Option:
    """One of Marian's options.

    name: the long name; short: the one-letter name; kind: bool, int, float, str, or dict for options in an
        option, as YAML has them.
    many: takes a list of values. implicit: the value of the bare option, without an argument.
    least: the smallest number allowed. choices: the strings allowed.
    command: concerns only the command line, not ``Translator``, ``Scorer`` and ``Trainer``.
    dumped: stands in configurations that are written: real Marian knows it.
    """

    name: str
    kind: type = bool
    default: Any = False
    help: str = ""
    short: str = ""
    many: bool = False
    implicit: str | None = None
    least: float | None = None
    choices: tuple[str, ...] = ()
    support: Support = Support.YES
    command: bool = False
    dumped: bool = True

    @property
    def attribute(self) -> str:
        """The name as a Python argument: ``beam_size`` for ``--beam-size``."""
        return self.name.replace("-", "_")

    def read(self, words: Sequence[str]) -> Any:
        """The value that these words stand for; OptionError names the option and the word."""
        if self.many:
            given = () if list(words) == ["[]"] else words
            return tuple(self._one(word) for word in given)
        if len(words) != 1:
            raise OptionError(f"--{self.name} takes one value, got {len(words)}")
        return self._one(words[0])

    def accept(self, value: object) -> Any:
        """A Python value as the option's own type, by the rule of ``read``."""
        items = value if isinstance(value, list | tuple) else (value,)
        return self.read([_word(item) for item in items])

    def _one(self, word: str) -> Any:
        if self.kind is dict:
            return _map_of_words(word, self.name)
        if self.kind is bool:
            if word.lower() not in TRUE + FALSE:
                raise OptionError(f"--{self.name} is true or false, got '{word}'")
            return word.lower() in TRUE
        try:
            value = self.kind(path_text(word))
            if self.kind is float and not abs(value) <= MOST_REAL:
                raise ValueError
        except ArgumentError as error:
            raise OptionError(f"--{self.name}: {error}") from None
        except ValueError:
            expected = "a whole number" if self.kind is int else "a number"
            raise OptionError(f"--{self.name} takes {expected}, got '{word}'") from None
        if self.kind is int and abs(value) > MOST_WHOLE:
            raise OptionError(f"--{self.name} takes a whole number of 64 bits, got {word}")
        if self.least is not None and not value >= self.least:
            raise OptionError(f"--{self.name} must be at least {self.least}, got {word}")
        if self.choices and value and value not in self.choices:
            allowed = ", ".join(self.choices)
            raise OptionError(f"--{self.name} must be one of {allowed}; got '{word}'")
        return value


def later(name: str, kind: type = bool, default: Any = False, **rest: Any) -> Option:
    """An option of Marian's that a later version will support."""
    return Option(name, kind, default, support=Support.LATER, **rest)


def ignored(name: str, kind: type = bool, default: Any = False, **rest: Any) -> Option:
    """An option of Marian's that has nothing to change here."""
    return Option(name, kind, default, support=Support.IGNORED, **rest)


@dataclass(frozen=True)
class Command:
    """A command and its options by section.

    operands: what its words without an option are called in the help; empty if it takes none.
    examples: lines of the help, each a command and what it is for.
    aliases: options that stand for others.
    complete: adds to what is given by name what follows from it.
    check: looks at all values together, raises OptionError, and gives back the values, completed.
    goes_on: takes options from ``MODEL.yml``, if that is there, as a training that goes on does.
    """

    name: str
    summary: str
    sections: Mapping[str, tuple[Option, ...]]
    operands: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    aliases: tuple[Alias, ...] = ()
    complete: Callable[[Mapping[str, Given]], dict[str, Given]] = dict
    check: Callable[[dict[str, Any]], dict[str, Any]] = dict
    goes_on: bool = False
    options: Mapping[str, Option] = field(init=False)

    def __post_init__(self) -> None:
        table = {option.name: option for section in self.sections.values() for option in section}
        object.__setattr__(self, "options", table)

    def option(self, name: str, where: str = "") -> Option:
        """The option of that long name; OptionError with the nearest name if there is none."""
        try:
            return self.options[name]
        except KeyError:
            raise OptionError(f"{where}unknown option {nearest(name, self.options)}") from None

    def values(self, given: Mapping[str, Given]) -> dict[str, Any]:
        """All options of the command by attribute name: what is given by name, else the default.

        Options that stand for others are replaced by them. OptionError if the values do not go together, or
        if one is not supported yet.
        """
        self._refuse_later(given)
        replaced = expanded(self.aliases, given)
        self._refuse_later(replaced)
        values = {option.attribute: option.default for option in self.options.values()}
        values.update({self.options[name].attribute: found.value for name, found in replaced.items()})
        for option in self.options.values():
            if option.kind is dict:
                maps = values[option.attribute]
                values[option.attribute] = tuple(self._typed(words, f"--{option.name}: ") for words in maps)
        return self.check(values)

    def _typed(self, words: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The options of a map by attribute name, with their own types."""
        typed = {}
        for name, value in words.items():
            option = self.option(name.replace("_", "-"), where)
            typed[option.attribute] = option.accept(value)
        return typed

    def _refuse_later(self, given: Mapping[str, Given]) -> None:
        for name, found in given.items():
            option = self.options[name]
            if option.support is Support.LATER and found.value != option.default:
                raise OptionError(f"--{name} {Support.LATER.value}")

    def python_options(self) -> dict[str, Option]:
        """The options that ``Translator``, ``Scorer`` or ``Trainer`` take, by attribute name."""
        return {o.attribute: o for o in self.options.values() if not o.command}

    def from_python(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all options from Python arguments, which are checked like a command line."""
        table = self.python_options()
        for name in given:
            if name not in table:
                raise TypeError(f"unknown option {nearest(name, table, prefix='')}")
        accepted = {
            table[name].name: Given(table[name].accept(value), Source.COMMAND_LINE)
            for name, value in given.items()
        }
        return self.values(self.complete(accepted))

    def python_values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of ``python_options`` from Python arguments."""
        values = self.from_python(given)
        return {name: values[name] for name in self.python_options()}


def number(word: str) -> float:
    """The number that a word stands for, also as C++ writes it: ``8.f``; ValueError if it is none."""
    return float(word.removesuffix("f"))


def shown(value: object) -> str:
    """The value of an option as a line of the log has it."""
    return " ".join(map(_word, value)) if isinstance(value, tuple) else _word(value)


def _word(value: object) -> str:
    """A Python value as a command line has it."""
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _map_of_words(text: str, name: str) -> Mapping[str, Any]:
    """``{name: value, ...}`` in YAML, each word as it stands there."""
    try:
        found = yaml_text.read(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"--{name} takes options as {{name: value, ...}}, got '{text:.80}'")
    return found


def nearest(name: str, names: Iterable[str], prefix: str = "--") -> str:
    """``--beam; did you mean --beam-size?``, or just the name if none is near."""
    known = list(names)
    close = difflib.get_close_matches(name, known, n=1)
    close = close or [other for other in known if other.startswith(name)]
    return f"{prefix}{name}" + (f"; did you mean {prefix}{close[0]}?" if close else "")
