"""Options as fields of dataclasses: one declaration for the command line, files, Python, dumps and help.

A section of options is a frozen dataclass whose fields are declared with ``option``, ``ignored`` or
``later``; a command is a dataclass that inherits its sections. Names, meanings and defaults are Marian's.
Each value is read by the same rule wherever it comes from, and a known option that is not supported yet is
refused by name unless it is given its default (a configuration that Marian dumped holds every option).

The files that options name are asked for before anything is loaded, made or computed.
"""

from __future__ import annotations

import difflib
import errno
import inspect
import json
import os
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
import yaml

from mgraph.errors import ArgumentError, MGraphError
from mgraph.files.paths import path_text
from nmt.settings import yaml_text
from nmt.text.lines import STANDARD_INPUT, STANDARD_OUTPUT

TRUE = ("true", "on", "yes", "1")
FALSE = ("false", "off", "no", "0")
MOST_WHOLE = (1 << 64) - 1
MOST_REAL = float(np.finfo(np.float32).max)
"""The largest numbers that Marian knows."""
_DECLARED = "option"

C = TypeVar("C", bound="Options")


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

    name: the long name; attribute: that of the field, and of the Python argument; short: the one-letter name.
    kind: bool, int, float, str, or dict for options in an option, as YAML has them.
    many: takes a list of values. implicit: the value of the bare option, without an argument.
    least, most: the smallest and the largest number allowed; below: what a number must be less than.
    choices: the strings allowed.
    greatest: the largest number that a model may have. letters: the operations of which a model's string is
    made. open: the choices are checked where the model is made, not here.
    reason: why the option is ignored.
    command: concerns only the command line, not ``Translator``, ``Scorer`` and ``Trainer``.
    dumped: stands in configurations that are written: real Marian knows it.
    after: the name of the option before it in Marian's order, if it is not the field before.
    """

    name: str = ""
    attribute: str = ""
    kind: type = bool
    default: Any = False
    help: str = ""
    short: str = ""
    many: bool = False
    implicit: str | None = None
    least: float | None = None
    most: float | None = None
    below: float | None = None
    greatest: int | None = None
    choices: tuple[str, ...] = ()
    letters: str = ""
    open: bool = False
    support: Support = Support.YES
    reason: str = ""
    command: bool = False
    dumped: bool = True
    after: str = ""

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

    def problem(self, value: Any) -> str:
        """What is wrong with the value of a model's option; empty if nothing is."""
        if self.greatest is not None and not (
            isinstance(value, int) and (self.least or 0) <= value <= self.greatest
        ):
            return f"expected a number from {self.least} to {self.greatest}, got {value!r}"
        if self.choices and value not in self.choices:
            return f"{value!r} is unknown; there is {', '.join(map(repr, self.choices))}"
        unknown = [letter for letter in value if letter not in self.letters] if self.letters else []
        if unknown:
            known = ", ".join(self.letters)
            return f"{value!r} has the unknown operation {unknown[0]!r}; there is {known}"
        return ""

    @property
    def values(self) -> str:
        """The values of a model's option in words; empty if all of its type."""
        if self.greatest is not None:
            return f"{self.least} to {self.greatest}"
        return ", ".join(choice or '""' for choice in self.choices) or ", ".join(self.letters)

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
        if self.most is not None and value > self.most:
            raise OptionError(f"--{self.name}: expected at most {self.most:g}, got {value:g}")
        if self.below is not None and value >= self.below:
            raise OptionError(f"--{self.name}: expected less than {self.below:g}, got {value:g}")
        if self.choices and not self.open and value and value not in self.choices:
            allowed = ", ".join(self.choices)
            raise OptionError(f"--{self.name} must be one of {allowed}; got '{word}'")
        return value


def option(default: Any, help: str = "", *, name: str = "", **rest: Any) -> Any:
    """A field that is an option; ``rest`` as in ``Option``. Kind and ``many`` follow from the field's type,
    the name from the field's unless it is given."""
    declared = Option(name=name, default=default, help=help, **rest)
    return field(default=default, metadata={_DECLARED: declared})


def later(default: Any, **rest: Any) -> Any:
    """An option of Marian's that a later version will support."""
    return option(default, support=Support.LATER, **rest)


def ignored(default: Any, reason: str, help: str = "", **rest: Any) -> Any:
    """An option of Marian's that has nothing to change here."""
    return option(default, help, reason=reason, support=Support.IGNORED, **rest)


def again(section: type[Options], attribute: str, default: Any = MISSING, **changes: Any) -> Any:
    """An option of ``section``, declared again with another default, or with other ``changes``."""
    declared = next(f.metadata[_DECLARED] for f in fields(section) if f.name == attribute)
    default = declared.default if default is MISSING else default
    return field(default=default, metadata={_DECLARED: replace(declared, default=default, **changes)})


@dataclass(frozen=True, kw_only=True)
class Options:
    """A section of options, or all options of a command.

    Each option is one field, for example
    ``beam_size: int = option(12, "hypotheses kept per sentence", short="b", least=1)``.

    Values are converted and checked by the options' own rules: ``OptionError`` for one that cannot be.
    title: what the section is called in the help and in configurations.
    """

    title: ClassVar[str] = ""

    def __post_init__(self) -> None:
        table = options_of(type(self))
        for declared in table.values():
            value = getattr(self, declared.attribute)
            if value is not declared.default:  # which is right as it stands
                value = declared.accept(value)
                value = _nested(declared, value, table) if declared.kind is dict else value
                object.__setattr__(self, declared.attribute, value)


def options_of(section: Any) -> Mapping[str, Option]:
    """The options of a class of options, a section or a command, by name, in Marian's order."""
    return _collected(section)


@cache
def _collected(section: Any) -> Mapping[str, Option]:
    types = typing.get_type_hints(section)
    declared = {f.name: f.metadata[_DECLARED] for f in fields(section) if _DECLARED in f.metadata}
    found: list[Option] = []
    for attribute in dict.fromkeys(_attributes(section)):
        if attribute not in declared:
            continue
        elements = typing.get_args(types[attribute])
        kind = elements[0] if elements else types[attribute]
        one = replace(
            declared[attribute],
            name=declared[attribute].name or attribute.replace("_", "-"),
            attribute=attribute,
            kind=dict if typing.get_origin(kind) else kind,
            many=bool(elements),
        )
        names = [other.name for other in found]
        found.insert(names.index(one.after) + 1 if one.after else len(found), one)
    return MappingProxyType({one.name: one for one in found})


def _attributes(section: type) -> Iterator[str]:
    """The fields in the order of the bases, where each is declared first."""
    for base in section.__bases__:
        yield from _attributes(base)
    yield from inspect.get_annotations(section)


def saved_in_model(*, dumped: bool = True) -> Callable[[type[C]], type[C]]:
    """The class with its options ignored: the model file has these, and overrides the command line.

    dumped: whether Marian's configurations have them where a model is read.
    """
    ignoring = {"support": Support.IGNORED, "reason": "the model file's own value counts", "command": True}
    free = {"least": None, "greatest": None, "choices": (), "letters": ""}

    def ignored_all(section: type[C]) -> type[C]:
        types = typing.get_type_hints(section)
        for f in fields(section):
            stays = {"dumped": dumped and f.metadata[_DECLARED].dumped}
            setattr(section, f.name, again(section, f.name, **ignoring, **free, **stays))
            section.__annotations__[f.name] = types[f.name]
        return dataclass(frozen=True, kw_only=True)(section)

    return ignored_all


def _nested(
    declared: Option, maps: Iterable[Mapping[str, Any]], table: Mapping[str, Option]
) -> tuple[dict[str, Any], ...]:
    """The options in an option by attribute, with their own types."""
    found = []
    for words in maps:
        typed = {}
        for name, value in words.items():
            name = name.replace("_", "-")
            if name not in table:
                raise OptionError(f"--{declared.name}: unknown option {nearest(name, table)}")
            typed[table[name].attribute] = table[name].accept(value)
        found.append(typed)
    return tuple(found)


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


def require_files(option: str, models: Sequence[str], vocabs: Sequence[str]) -> None:
    """OptionError unless a model, by the option that names it, and vocabularies are named; how many the model
    itself says."""
    if not any(models):
        raise OptionError(f"{option}: at least one model is needed, got 0")
    if not vocabs:
        raise OptionError("--vocabs: the vocabularies of the sources and the target are needed, got none")


def require_readable(option: str, paths: Iterable[str]) -> None:
    """OSError that names the file and the option (``--input``) unless all of these can be read; empty names
    and standard input can. Nothing is opened: a pipe could not be opened again."""
    for path in paths:
        if not path or path in STANDARD_INPUT:
            continue
        if not os.path.exists(path):
            raise _error(errno.ENOENT, option, path)
        if os.path.isdir(path):
            raise _error(errno.EISDIR, option, path)
        if not os.access(path, os.R_OK):
            raise _error(errno.EACCES, option, path)


def require_writable(option: str, path: str) -> None:
    """OSError that names the file and the option unless it can be written, or made in a folder that there is;
    an empty name and standard output can."""
    if not path or path in STANDARD_OUTPUT:
        return
    if os.path.isdir(path):
        raise _error(errno.EISDIR, option, path)
    if os.path.exists(path):
        if not os.access(path, os.W_OK):
            raise _error(errno.EACCES, option, path)
        return
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise _error(errno.ENOENT, option, path, f"there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _error(errno.EACCES, option, path)


def require_folder(option: str, path: str) -> None:
    """The same for a folder, which is made with those above it where there is none."""
    if not path:
        return
    present = os.path.abspath(path)
    while not os.path.exists(present):
        present = os.path.dirname(present)
    if not os.path.isdir(present):
        raise _error(errno.ENOTDIR, option, path)
    if not os.access(present, os.W_OK | os.X_OK):
        raise _error(errno.EACCES, option, path)


def require_tempdir(folder: str) -> None:
    """OptionError unless there is the folder for temporary files."""
    if not os.path.isdir(folder):
        raise OptionError(f"--tempdir {folder}: there is no such directory")


def _error(number: int, option: str, path: str, reason: str = "") -> OSError:
    """``path: No such file or directory (--option)``, of the class that the system's own error has."""
    said = f"{os.strerror(number)}; {reason}" if reason else os.strerror(number)
    return OSError(number, f"{said} ({option})", path)
