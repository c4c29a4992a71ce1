"""Options as fields of dataclasses: one declaration for the command line, files, Python, dumps and help.

A section of options is a class whose fields are declared with ``option``, ``ignored`` or ``refused``; the
options of a command are a class that inherits its sections. Names, meanings and defaults are Marian's. Values
from all sources are parsed by the same rules. A refused option is an error unless it has its default, because
Marian's dumped configurations contain every option.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, replace
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

import numpy as np
import yaml

from mgraph.errors import ArgumentError, MGraphError
from mgraph.files.paths import path_text
from mgraph.names import meant
from nmt.settings import yaml_text
from nmt.settings.other_names import COMMANDS, MARIANS

TRUE = ("true", "on", "yes", "1")
FALSE = ("false", "off", "no", "0")
MOST_WHOLE = (1 << 64) - 1
MOST_REAL = float(np.finfo(np.float32).max)
"""The largest numbers that Marian supports."""
_DECLARED = "option"
NAME = ".NAME"
"""The end of a choice that stands for many values."""

C = TypeVar("C", bound="Options")


class OptionError(MGraphError, ValueError):
    """An option is unknown or refused, or has an invalid value."""


class UnknownOptionError(OptionError):
    """A command has no option ``name``."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name

    @classmethod
    def among(cls, names: Iterable[str], name: str, where: str = "") -> UnknownOptionError:
        """The error for a name that is not one of ``names``, with the nearest one."""
        return cls(f"{where}unknown option {nearest(name, names)}", name)


class Support(Enum):
    """How an option is supported."""

    YES = "works as in Marian"
    REFUSED = "is Marian's, and refused"
    IGNORED = "is accepted and changes nothing here"
    SAVED = "counts for a model file that has none of its own, or with --ignore-model-config"


@dataclass(frozen=True, slots=True)
class Option:
    """One of Marian's options.

    name: the long name; attribute: the name of the field and of the Python argument; short: the letter.
    kind: bool, int, float, str, or dict for a YAML map of options. many: takes a list of values.
    implicit: the value of the option without an argument. choices: the allowed strings; ``optax.NAME`` allows
        all that begin with ``optax.``.
    least, most, below: the smallest and the largest allowed number, and an exclusive upper bound.
    greatest: the largest number allowed in a model. letters: the operations allowed in a model's string.
    open: the choices are checked when the model is created, not here. reason: why the option is ignored or
        refused. absent: values of Marian's that are refused, each with the reason.
    command: only for the command line, not for ``Translator``, ``Scorer`` and ``Trainer``. python: tells
        users what to do there instead of giving the option, or an object as its value.
    named: takes ``NAME=VALUE``, in Python also a map.
    dumped: written to configurations, because Marian knows it too. kept: written to configurations unless it
        has its default, although Marian does not know it, because training could not be resumed without it.
    after: the name of the previous option in Marian's order, if it is not the previous field.
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
    absent: Mapping[str, str] = field(default_factory=dict, hash=False)
    command: bool = False
    python: str = ""
    named: bool = False
    dumped: bool = True
    kept: bool = False
    after: str = ""

    def read(self, words: Sequence[str], *, converted: bool = False) -> Any:
        """Parse these words; OptionError names the option and the word.

        converted: also accept what Marian converts in configuration files: ``true`` (1) and ``false`` (0) for
            a number, and ``2.0`` for a whole number. Not in lists.
        """
        if self.many:
            given = () if list(words) == ["[]"] else words
            return tuple(self._one(word) for word in given)
        if len(words) != 1:
            raise OptionError(f"--{self.name} takes one value, got {len(words)}: {', '.join(words)}")
        return self._one(words[0], converted)

    def accept(self, value: object) -> Any:
        """Convert a Python value to the option's type, by the rules of configuration files."""
        if self.named and isinstance(value, Mapping):
            words = [f"{name}={self._in_yaml(one)}" for name, one in value.items()]
        else:
            items = value if isinstance(value, list | tuple) else (value,)
            words = [self._plain(item, of=value) for item in items]
        return self.read(words, converted=True)

    def problem(self, value: Any) -> str:
        """What is wrong with the value of a model option; empty if it is valid."""
        if self.greatest is not None and not (
            isinstance(value, int) and (self.least or 0) <= value <= self.greatest
        ):
            return f"expected a number from {self.least} to {self.greatest}, got {value!r}"
        for one in value if self.many else (value,):
            if one in self.absent:
                return f"{one!r} is not supported: {self.absent[one]}"
            if self.choices and one not in self.choices:
                hint = meant(str(one), self.choices, repr)
                return f"{one!r} is unknown; expected {', '.join(map(repr, self.choices))}{hint}"
        unknown = [letter for letter in value if letter not in self.letters] if self.letters else []
        if unknown:
            known = ", ".join(self.letters)
            return f"{value!r} has the unknown operation {unknown[0]!r}; expected {known}"
        return ""

    @property
    def values(self) -> str:
        """The allowed values of a model option, as text; empty if it allows all values of its type."""
        if self.greatest is not None:
            return f"{self.least} to {self.greatest}"
        return ", ".join(choice or '""' for choice in self.choices) or ", ".join(self.letters)

    def is_written(self, value: Any) -> bool:
        """Whether configurations contain the option when it has this value."""
        return value != self.default if self.kept else self.dumped

    def _in_yaml(self, value: object) -> str:
        """The value of a name as YAML in one line."""
        if isinstance(value, Mapping):
            pairs = (f"{self._in_yaml(name)}: {self._in_yaml(one)}" for name, one in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self._in_yaml, value))}]"
        return self._plain(value, of=value)

    def _plain(self, item: object, of: object) -> str:
        """An item of the Python value ``of`` as a word. OptionError for a function or another object, and for
        None unless the option is ``named``: only parameters of optax may be None."""
        known = isinstance(item, str | os.PathLike | Mapping) or hasattr(item, "__float__")
        if callable(item) or not (known or (item is None and self.named)):
            hint = f"; in Python {self.python}" if self.python else ""
            if of is None:
                hint = "; leave it out for the default"
            raise OptionError(f"--{self.name}: expected text, numbers or truth values, got {of!r:.80}{hint}")
        return _word(item)

    def _is_choice(self, value: Any) -> bool:
        begins = tuple(choice.removesuffix(NAME) + "." for choice in self.choices if choice.endswith(NAME))
        return value in self.choices or (bool(begins) and value.startswith(begins))

    def _one(self, word: str, converted: bool = False) -> Any:
        if self.kind is dict:
            return _map_of_words(word, self.name)
        if self.kind is bool:
            if word.lower() not in TRUE + FALSE:
                hint = meant(word.lower(), TRUE + FALSE)
                raise OptionError(f"--{self.name} must be true or false, got '{word}'{hint}")
            return word.lower() in TRUE
        try:
            value = self.kind(_as_number(word, self.kind) if converted else path_text(word))
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
        if not self.open and value in self.absent:
            raise OptionError(f"--{self.name} {value}: {self.absent[value]}")
        if self.choices and not self.open and value and not self._is_choice(value):
            allowed = ", ".join(self.choices)
            raise OptionError(
                f"--{self.name} must be one of {allowed}; got '{word}'{meant(word, self.choices)}"
            )
        return value


def option(default: Any, help: str = "", *, name: str = "", **rest: Any) -> Any:
    """A field that is an option; ``rest`` as in ``Option``. The field's type determines kind and ``many``;
    its name is the default of ``name``."""
    declared = Option(name=name, default=default, help=help, **rest)
    return field(default=default, metadata={_DECLARED: declared})


def refused(default: Any, reason: str, **rest: Any) -> Any:
    """An option of Marian's that is refused, with the reason for the user."""
    return option(default, reason=reason, support=Support.REFUSED, **rest)


def ignored(default: Any, reason: str, help: str = "", **rest: Any) -> Any:
    """An option of Marian's that has no effect here."""
    return option(default, help, reason=reason, support=Support.IGNORED, **rest)


def again(section: type[Options], attribute: str, default: Any = MISSING, **changes: Any) -> Any:
    """Declare an option of ``section`` again, with another default or other ``changes``."""
    declared = next(f.metadata[_DECLARED] for f in fields(section) if f.name == attribute)
    default = declared.default if default is MISSING else default
    return field(default=default, metadata={_DECLARED: replace(declared, default=default, **changes)})


class _Signature:
    """The signature of a class of options: its fields, as ``help`` shows them."""

    def __get__(self, instance: object, owner: type[Options]) -> inspect.Signature:
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [inspect.Parameter(f.name, kind, default=_default(f), annotation=f.type) for f in fields(owner)]
        )


_as_dataclass = dataclass(init=False, repr=False, eq=False)
"""Generates no methods: for hundreds of fields that would take a tenth of a command's start."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Options:
    """A section of options, or all options of a command. All subclasses are immutable dataclasses.

    Each option is one field, for example
    ``beam_size: int = option(12, "hypotheses kept per sentence", short="b", least=1)``.

    Values are converted and validated by the options' own rules; ``OptionError`` for an invalid one,
    ``TypeError`` for a name that is not a field.
    title: the title of the section in the help and in configurations.
    """

    title: ClassVar[str] = ""
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    __signature__ = _Signature()

    def __init_subclass__(cls) -> None:
        _as_dataclass(cls)

    def __init__(self, **values: Any) -> None:
        for f in fields(self):
            vars(self)[f.name] = values.pop(f.name) if f.name in values else _default(f)
        if values:
            unknown = nearest(next(iter(values)), (f.name for f in fields(self)), prefix="")
            raise TypeError(f"{type(self).__name__}: unknown field {unknown}")
        self.__post_init__()

    def __post_init__(self) -> None:
        table = options_of(type(self))
        for declared in table.values():
            value = getattr(self, declared.attribute)
            if value is not declared.default:  # defaults need no check
                value = declared.accept(value)
                value = _nested(declared, value, table) if declared.kind is dict else value
                vars(self)[declared.attribute] = value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}; dataclasses.replace makes other options")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        own = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"{type(self).__qualname__}({own})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in fields(self) if f.compare)


_as_dataclass(Options)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


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
    """The fields in the order of the bases, each where it is declared first."""
    for base in section.__bases__:
        yield from _attributes(base)
    yield from inspect.get_annotations(section)


def saved_in_model(*, dumped: bool = True) -> Callable[[type[C]], type[C]]:
    """Decorate a section whose options the model file overrides, if that file has options. Values are checked
    only when they are used.

    dumped: whether Marian's decoder configurations contain them.
    """
    free: dict[str, Any] = {"least": None, "greatest": None, "choices": (), "letters": "", "absent": {}}

    def saved(section: type[C]) -> type[C]:
        own: dict[str, Any] = {"__doc__": section.__doc__, "__annotations__": typing.get_type_hints(section)}
        for f in fields(section):
            declared = f.metadata[_DECLARED]
            changes: dict[str, Any] = {"support": Support.SAVED}
            if declared.support is not Support.YES:
                changes = {"support": Support.IGNORED, "reason": "the model file's value is used"}
            stays = {"dumped": dumped and declared.dumped}
            own[f.name] = again(section, f.name, **changes, **free, **stays)
        return type(section.__name__, (section,), own)

    return saved


def _nested(
    declared: Option, maps: Iterable[Mapping[str, Any]], table: Mapping[str, Option]
) -> tuple[dict[str, Any], ...]:
    """Nested options by attribute, converted to their own types."""
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
    """Parse a number, also in C++ notation such as ``8.f``; ValueError for other words, NaN and infinity."""
    value = float(word.removesuffix("f"))
    if not abs(value) <= MOST_REAL:
        raise ValueError
    return value


def shown(value: object) -> str:
    """The value of an option as the log shows it."""
    return " ".join(map(_word, value)) if isinstance(value, tuple) else _word(value)


def _word(value: object) -> str:
    """A Python value as a command-line word."""
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_number(word: str, kind: type) -> str:
    """What ``kind`` parses for ``word``: ``1`` for ``true`` if it is a number type, ``2`` for ``2.0`` if it
    is ``int``. ValueError for any other word in place of a whole number."""
    if kind is str:
        return path_text(word)
    if word.lower() in TRUE + FALSE:
        return "1" if word.lower() in TRUE else "0"
    digits = word.lstrip("+-").isdigit()  # a float would round them
    return str(int(float(word))) if kind is int and not digits and float(word).is_integer() else word


def _map_of_words(text: str, name: str) -> Mapping[str, Any]:
    """Parse ``{name: value, ...}`` in YAML, without converting the words."""
    try:
        found = yaml_text.read(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"--{name} takes options as {{name: value, ...}}, got '{text:.80}'")
    return found


def nearest(name: str, names: Iterable[str], prefix: str = "--") -> str:
    """``--beam; did you mean --beam-size?``, or only the name if no other is similar. Hyphens and underscores
    are equivalent here, and the names that other toolkits and Marian's programs use are known."""
    known = {other.replace("_", "-"): other for other in names}
    said = name.replace("_", "-")
    close = [said, MARIANS.get(said, ""), COMMANDS.get(said, "")]
    close += difflib.get_close_matches(said, known, n=1)
    close += [other for other in known if said and other.startswith(said)]
    meant = [known[other] for other in close if other in known]
    return f"{prefix}{name}" + (f"; did you mean {prefix}{meant[0]}?" if meant else "")


def whole_number(name: str, value: Any) -> int:
    """The argument ``name``; OptionError unless it is a whole number from 0."""
    if not (isinstance(value, int | np.integer) and value >= 0):
        raise OptionError(f"{name} must be a whole number from 0, got {value!r}")
    return int(value)
