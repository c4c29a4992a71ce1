"""Commands and their configuration: defaults, then configuration files, then the command line."""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, NoReturn, TypeVar

import yaml

from mgraph.errors import ArgumentError
from mgraph.files.paths import path_text
from nmt.settings import yaml_text
from nmt.settings.aliases import Alias, Given, Origin, expanded
from nmt.settings.option import (
    Option,
    OptionError,
    Options,
    Support,
    UnknownOptionError,
    nearest,
    options_of,
)
from nmt.text.lines import STANDARD_INPUT, STANDARD_OUTPUT

PATHS = """
model models pretrained-model train-sets vocabs embedding-vectors valid-sets valid-script-path valid-log
valid-translation-output input output data-weighting log sqlite log-json tensorboard pieces
""".split()
TEMPORARY = "temporary"  # not a path, but the implicit value of --sqlite
# In files of older versions of Marian: mostly options of devices and processes.
OBSOLETE = """
version special-vocab num-devices clip-gemm multi-node multi-node-overlap grad-dropping-momentum
grad-dropping-warmup
""".split()
OBSOLETE_DEFAULTS = {
    "batch-flexible-lr": "false",
    "batch-normal-words": "1920",
    "grad-dropping-rate": "0",
    "mini-batch-overstuff": "1",
    "mini-batch-understuff": "1",
}
# Options of Bergamot's fork of Marian; they affect speed, rounding and the splitting of text into lines.
BERGAMOTS = """
bergamot-mode cache-size gemm-precision max-length-break qe-sentence-level-thresholds quality
origin-language ssplit-mode ssplit-prefix-file target-language
""".split()

_SHELLS = re.compile(r"""['"\\`$]|^~""")
"""What the shell replaces: a word with it is no path as it stands."""

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=Options)
F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True)
class Command(Generic[C]):
    """A command and its options.

    made: the class of its options. Its bases with a title are the sections of help and configurations.
    operands: the name of its operands in the help; empty if it takes none. They are the field ``operands`` of
        ``made``.
    examples: commands for the help, each with its purpose.
    aliases: options that set several others.
    complete: adds options that follow from the given ones.
    sets_aside: whether only ``complete`` reads a configuration file, from the options of the command line and
        the file's path.
    check: validates all values together, raises OptionError, and returns them completed.
    goes_on: reads options from ``MODEL.yml`` if it exists, as resumed training does.
    """

    name: str
    summary: str
    made: type[C]
    operands: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    aliases: tuple[Alias, ...] = ()
    complete: Callable[[Mapping[str, Given]], dict[str, Given]] = dict
    sets_aside: Callable[[Mapping[str, Any], str], bool] = field(default=lambda words, path: False)
    check: Callable[[C], C] = field(default=lambda options: options)
    goes_on: bool = False

    @property
    def options(self) -> Mapping[str, Option]:
        """All options by name."""
        return options_of(self.made)

    @cached_property
    def sections(self) -> dict[str, tuple[Option, ...]]:
        """The options by title of their section."""
        titled = [base for base in self.made.__bases__ if issubclass(base, Options) and base.title]
        return {
            section.title: tuple(self.options[name] for name in options_of(section))
            for section in titled or [self.made]
        }

    def option(self, name: str, where: str = "") -> Option:
        """The option with this long name; UnknownOptionError with the nearest name if there is none."""
        try:
            return self.options[name]
        except KeyError:
            raise UnknownOptionError.among(self.options, name, where) from None

    def values(self, given: Mapping[str, Given], **more: Any) -> C:
        """The options of the command: given values, else defaults; ``more`` are fields that are not options.

        Aliases are expanded. OptionError if values conflict, or if one is refused.
        """
        return self.check(self.made(**self._expanded(given), **more))

    def _expanded(self, given: Mapping[str, Given]) -> dict[str, Any]:
        """The values by attribute, with aliases expanded; OptionError if one is refused."""
        self._refuse(given)
        replaced = expanded(self.aliases, given)
        self._refuse(replaced)
        return {self.options[name].attribute: found.value for name, found in replaced.items()}

    def _refuse(self, given: Mapping[str, Given]) -> None:
        for name, found in given.items():
            option = self.options[name]
            if option.support is Support.REFUSED and found.value != option.default:
                raise OptionError(f"--{name} {Support.REFUSED.value}: {option.reason}")

    def python_options(self) -> dict[str, Option]:
        """The options that ``Translator``, ``Scorer`` or ``Trainer`` take, by attribute name."""
        return {o.attribute: o for o in self.options.values() if not o.command}

    def from_python(self, given: Mapping[str, Any]) -> C:
        """The options from Python arguments, which are validated like a command line.

        TypeError for an unknown option and for one of the command line only, OptionError for an invalid
        value.
        """
        return self.values(self.complete(self._accepted(given)))

    def changed(self, options: C, given: Mapping[str, Any]) -> C:
        """``options`` changed by Python arguments, by the rules and with the errors of ``from_python``.

        Arguments override ``options`` as a command line overrides a file, and so do aliases among them. An
        option that only follows from arguments, as ``--tsv`` from standard input, overrides nothing.
        """
        accepted = self._accepted(given)
        had = {
            name: Given(getattr(options, option.attribute), Origin.FILE)
            for name, option in self.options.items()
            if getattr(options, option.attribute) != option.default
        }
        values = self._expanded({**self.complete(accepted), **had, **accepted})
        aliases = (self.options[alias.option] for alias in self.aliases)
        unset = {option.attribute: option.default for option in aliases}
        return self.check(replace(options, **unset, **values))

    def _accepted(self, given: Mapping[str, Any]) -> dict[str, Given]:
        """Python arguments by option name, converted to the types of their options."""
        _check_names(given, self.options)
        table = self.python_options()
        return {
            table[name].name: Given(table[name].accept(value), Origin.COMMAND_LINE)
            for name, value in given.items()
        }

    def from_config(self, path: str) -> dict[str, Any]:
        """The Python arguments in a configuration file."""
        table = {option.name: option for option in self.python_options().values()}
        found = read_config(self, path)
        return {table[name].attribute: value for name, value in found.items() if name in table}


def options_from(section: type[C], given: Mapping[str, Any]) -> C:
    """The options of a class from Python arguments. TypeError for an unknown option and for one of the
    command line only, OptionError for an invalid value."""
    _check_names(given, options_of(section))
    return section(**given)


def _check_names(given: Iterable[str], options: Mapping[str, Option]) -> None:
    """TypeError for the first name that is not a Python argument; for an option of the command line only, it
    says what to do instead."""
    declared = {option.attribute: option for option in options.values()}
    for name in given:
        option = declared.get(name)
        if option is None:
            known = (attribute for attribute, other in declared.items() if not other.command)
            raise TypeError(f"unknown option {nearest(name, known, prefix='')}")
        if option.command:
            instead = f"in Python {option.python}" if option.python else option.reason
            raise TypeError(f"{name} is for the command line only" + (f"; {instead}" if instead else ""))


def takes(command: Command[Any]) -> Callable[[F], F]:
    """Make ``help`` and completion show the Python options of a command instead of ``**given``."""

    def with_signature(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default)
            for name, option in command.python_options().items()
            if name not in signature.parameters
        ]
        function.__dict__["__signature__"] = signature.replace(parameters=[*own, *more])
        return function

    return with_signature


def with_standard_input(given: Mapping[str, Given]) -> dict[str, Given]:
    """The given options, completed as in Marian: ``--tsv`` without ``--train-sets`` reads standard input, and
    standard input alone implies ``--tsv``."""
    files: Sequence[str] = given["train-sets"].value if "train-sets" in given else ()
    if not files and "tsv" in given and given["tsv"].value:
        return {**given, "train-sets": Given(STANDARD_INPUT[:1], Origin.COMMAND_LINE)}
    said = "tsv" in given and given["tsv"].origin is Origin.COMMAND_LINE
    if len(files) == 1 and files[0] in STANDARD_INPUT and not said:
        return {**given, "tsv": Given(True, Origin.COMMAND_LINE)}
    return dict(given)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(message)


def parse(command: Command[C], argv: Sequence[str]) -> C:
    """The options of ``command`` from its command line and the files that it names.

    Raises OptionError for a usage error, naming the option (and the file that it came from).
    """
    return checked(command, *read(command, argv))


def checked(command: Command[C], given: Mapping[str, Given], operands: tuple[str, ...]) -> C:
    """The options of ``command`` from what ``read`` found; OptionError if they are invalid."""
    return command.values(given, operands=operands) if command.operands else command.values(given)


def read(command: Command[Any], argv: Sequence[str]) -> tuple[dict[str, Given], tuple[str, ...]]:
    """The options given by the command line and its configuration files, by name, and the operands."""
    words, operands = read_command_line(command, argv)
    interpolate = words.get("interpolate-env-vars", False)
    from_files: dict[str, Any] = {}
    configurations = _configurations(command, words)
    for path in configurations:
        if not command.sets_aside(words, path):
            from_files |= read_config(command, path, interpolate=interpolate)
    if interpolate or from_files.get("interpolate-env-vars", False):
        words = with_paths(words, _interpolated)
        from_files = with_paths(from_files, _interpolated)
    given = {name: Given(value, Origin.FILE) for name, value in from_files.items()}
    if "config" in words:
        words = {**words, "config": tuple(configurations)}  # interpolated, too
    given |= {name: Given(value, Origin.COMMAND_LINE) for name, value in words.items()}
    return command.complete(given), operands


def _configurations(command: Command[Any], words: Mapping[str, Any]) -> Sequence[str]:
    """The configuration files to read; without ``--config``, that of the training to resume."""
    changed = _interpolated if words.get("interpolate-env-vars", False) else str
    if words.get("config") or not command.goes_on:
        return [changed(path) for path in words.get("config", ())]
    path = changed(words.get("model", command.options["model"].default)) + ".yml"
    return [path] if os.path.exists(path) and not words.get("no-reload", False) else []


def read_config(command: Command[Any], path: str, interpolate: bool = False) -> dict[str, Any]:
    """The options in a YAML file such as ``decoder.yml``, by option name.

    With ``relative-paths: true`` paths are relative to the file; environment variables in them are replaced
    first if the file or ``interpolate`` asks for it. Scalars are parsed by the type of their option, so that
    ``no``, ``1e-1`` and ``none`` mean the same as in Marian; ``normalize: true`` is 1, as there.
    """
    try:
        content = yaml_text.read_file(path_text(path)) or {}
    except ArgumentError as error:
        raise OptionError(f"configuration file: {error}") from None
    except OSError as error:
        raise OptionError(f"cannot read configuration file {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise OptionError(f"configuration file {path} is not valid YAML: {reason}") from None
    if not isinstance(content, dict):
        raise OptionError(f"configuration file {path} does not hold options (name: value)")
    values = {}
    for name, value in content.items():
        if name in OBSOLETE or name in BERGAMOTS or value == OBSOLETE_DEFAULTS.get(name, ()):
            continue
        option = command.option(name, where=f"{path}: ")
        words = value if isinstance(value, list) else [value]
        if option.kind is dict:  # the option parses YAML itself
            words = [word if isinstance(word, str) else json.dumps(word) for word in words]
        if not all(isinstance(word, str) for word in words):
            raise OptionError(f"{path}: --{name} takes a value or a list of values")
        try:
            values[name] = option.read(words, converted=True)
        except OptionError as error:
            raise OptionError(f"{path}: {error}") from None
    if values.get("relative-paths", False):
        del values["relative-paths"]  # it applies only to this file
        folder = os.path.dirname(path)
        if interpolate or values.get("interpolate-env-vars", False):
            values = with_paths(values, _interpolated)
        script = values.get("valid-script-path", "")
        first = script.partition(" ")[0]
        if "/" not in first and os.path.isfile(os.path.join(folder, first)):  # as in Marian, before PATH
            values["valid-script-path"] = f"./{script}"
        values = with_paths(values, lambda name: os.path.abspath(os.path.join(folder, name)))
    return values


def notices(command: Command[C], options: C) -> Iterator[str]:
    """Notices about given options that have no effect."""
    ignored: dict[str, list[str]] = {}
    saved: list[str] = []
    for option in command.options.values():
        if getattr(options, option.attribute) == option.default:
            continue
        if option.support is Support.IGNORED:
            ignored.setdefault(option.reason, []).append(f"--{option.name}")
        elif option.support is Support.SAVED:
            saved.append(f"--{option.name}")
    for reason, names in ignored.items():
        yield f"ignored, because {reason}: {' '.join(names)}"
    if saved and not getattr(options, "ignore_model_config", False):
        yield f"ignored where the model file has its own, without --ignore-model-config: {' '.join(saved)}"
    if getattr(options, "relative_paths", False) and not command.goes_on:
        yield "--relative-paths counts inside configuration files only, as in Marian"


def log_notices(command: Command[C], options: C) -> None:
    """Warn in the log of given options that have no effect."""
    for notice in notices(command, options):
        logger.warning("%s", notice)


def read_command_line(command: Command[Any], argv: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options given by a command line, by name, and the operands."""
    parser = _Parser(prog=f"mgraph {command.name}", allow_abbrev=False, add_help=False)
    for option in command.options.values():
        names = [f"--{option.name}"] + ([f"-{option.short}"] if option.short else [])
        bare = "true" if option.kind is bool else option.implicit
        if option.kind is bool and command.operands:  # the next word is an operand, not its value
            parser.add_argument(*names, dest=option.name, action="append_const", const="true")
        elif option.many:
            parser.add_argument(
                *names, dest=option.name, action="extend", nargs="*" if option.implicit else "+"
            )
        elif bare is not None:
            parser.add_argument(*names, dest=option.name, action="append", nargs="?", const=bare)
        else:
            parser.add_argument(*names, dest=option.name, action="append")
    words = _with_options_as_values(argv)
    if not command.operands:  # the words after --option=value are operands
        words = [part for word in words for part in _parted(word, command.options)]
    namespace, rest = parser.parse_known_args(words)
    operands = tuple(word for word in rest if not word.startswith("-")) if command.operands else ()
    if len(operands) < len(rest):
        raise _unexpected(command, rest)
    given = {command.options[name]: words for name, words in vars(namespace).items() if words is not None}
    values = {option.name: option.read(words or _implicit(option)) for option, words in given.items()}
    return values, operands


def _implicit(option: Option) -> list[str]:
    return (option.implicit or "").split() if option.many else [option.implicit or ""]


def _with_options_as_values(argv: Sequence[str]) -> list[str]:
    """``argv`` with ``--sentencepiece-options --name=value`` as one word, because the value looks like an
    option."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] == "--sentencepiece-options":
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _parted(word: str, options: Mapping[str, Option]) -> Sequence[str]:
    """``--vocabs=a`` as two words, because more values may follow, as in Marian; other words as they are."""
    name, _, value = word.removeprefix("--").partition("=")
    several = word.startswith("--") and name in options and options[name].many
    return (f"--{name}", value) if several and value and not value.startswith("-") else (word,)


def _unexpected(command: Command[Any], words: Sequence[str]) -> OptionError:
    for word in words:
        if word.startswith("--"):
            return UnknownOptionError.among(command.options, word[2:].partition("=")[0])
        if word.startswith("-") and word != "-":
            return OptionError(f"unknown option {word}")
    return OptionError(f"unexpected argument '{words[0]}'")


def with_paths(values: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Apply ``change`` to each path in the values."""
    changed = dict(values)
    for name, value in values.items():
        if name == "shortlist" and value:  # a path and numbers
            changed[name] = (_changed(value[0], change), *value[1:])
        elif name == "valid-script-path":  # the shell's line, whose first word may be found through PATH
            words = (value,) if _SHELLS.search(value) else value.split(" ")
            changed[name] = " ".join(_changed_word(word, change) for word in words)
        elif name == "valid-script-args":  # not all of them are paths
            changed[name] = tuple(_changed_word(word, change) for word in value)
        elif name == "data-weighting" and values.get("tsv", False):
            continue  # the number of a field
        elif name in PATHS and isinstance(value, tuple):
            changed[name] = tuple(_changed(path, change) for path in value)
        elif name in PATHS:
            changed[name] = _changed(value, change)
    return changed


def _changed_word(word: str, change: Callable[[str], str]) -> str:
    """A word of the shell's line with ``change`` applied if it is a path; it still has a slash then."""
    if "${" in word:
        return change(word)
    if "/" not in word or word.startswith("-") or _SHELLS.search(word):
        return word
    changed = change(word)
    return changed if "/" in changed else f"./{changed}"


def _changed(path: str, change: Callable[[str], str]) -> str:
    special = (*STANDARD_INPUT, *STANDARD_OUTPUT, TEMPORARY)
    return path if not path or path in special else change(path)


def _interpolated(path: str) -> str:
    def value(match: re.Match[str]) -> str:
        name, end = match.groups()
        if not end:
            raise OptionError(f"--interpolate-env-vars: '${{' without '}}' in path '{path}'")
        if name not in os.environ:
            raise OptionError(f"environment variable {name} in path '{path}' is not set")
        return os.environ[name]

    return re.sub(r"\$\{([^}]*)(\}?)", value, path)
