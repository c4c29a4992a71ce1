"""A command's configuration: defaults, then configuration files, then the command line."""

from __future__ import annotations

import argparse
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import yaml

from nmt.data.lines import STANDARD_INPUT, STANDARD_OUTPUT
from nmt.options import Command, Option, OptionError, Support, nearest

PATHS = ("models", "model", "vocabs", "input", "output", "train-sets", "log")
OBSOLETE = ("version", "special-vocab", "num-devices")  # in files of older versions of Marian
# Of the Marian that Bergamot forked; they change speed, rounding and what splits text into lines.
BERGAMOTS = """
bergamot-mode cache-size gemm-precision max-length-break qe-sentence-level-thresholds quality
source-language ssplit-mode ssplit-prefix-file target-language
""".split()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(message)


def parse(command: Command, argv: Sequence[str]) -> dict[str, Any]:
    """The values of all options of `command`, by attribute name, and its ``operands``.

    Raises OptionError for a usage error, naming the option (and the file that it came from).
    """
    given, operands = _read_command_line(command, argv)
    interpolate = given.get("interpolate-env-vars", False)
    from_files: dict[str, Any] = {}
    for path in given.get("config", ()):
        from_files |= read_config(command, _interpolated(path) if interpolate else path)
    if interpolate or from_files.get("interpolate-env-vars", False):
        given = dict(_with_paths(given, _interpolated))
        from_files = dict(_with_paths(from_files, _interpolated))
    merged = from_files | given
    values = command.values({command.options[name].attribute: merged[name] for name in merged})
    return values | {"operands": operands}


def read_config(command: Command, path: str) -> dict[str, Any]:
    """The options in a YAML file such as ``decoder.yml``, by option name.

    With ``relative-paths: true`` its paths are taken relative to the file. Every scalar is read
    as the option wants it, so that ``no``, ``1e-1`` and ``none`` mean what they mean to Marian.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            content = yaml.load(stream, yaml.BaseLoader) or {}
    except OSError as error:
        raise OptionError(f"cannot read configuration file {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise OptionError(f"configuration file {path} is not valid YAML: {reason}") from None
    if not isinstance(content, dict):
        raise OptionError(f"configuration file {path} does not hold options (name: value)")
    values = {}
    for name, value in content.items():
        if name in OBSOLETE or name in BERGAMOTS:
            continue
        words = value if isinstance(value, list) else [value]
        if not all(isinstance(word, str) for word in words):
            raise OptionError(f"{path}: --{name} takes a value or a list of values")
        option = command.option(name, where=f"{path}: ")
        try:
            values[name] = option.read(words)
        except OptionError as error:
            raise OptionError(f"{path}: {error}") from None
    if values.pop("relative-paths", False):
        folder = os.path.dirname(path)
        if values.get("interpolate-env-vars", False):
            values = dict(_with_paths(values, _interpolated))
        values = dict(_with_paths(values, lambda name: os.path.join(folder, name)))
    return values


def notices(command: Command, values: Mapping[str, Any]) -> Iterator[str]:
    """What to tell the user about options that were given and change nothing."""
    ignored: dict[str, list[str]] = {}
    for option in command.options.values():
        if option.support is Support.IGNORED and values[option.attribute] != option.default:
            ignored.setdefault(option.help, []).append(f"--{option.name}")
    for reason, names in ignored.items():
        yield f"ignored, because {reason}: {' '.join(names)}"
    if values.get("relative_paths"):
        yield "--relative-paths counts inside configuration files only, as in Marian"


def help_text(command: Command) -> str:
    """The text of ``--help``: options by section, and what is not supported yet."""
    operands = f" [{command.operands} ...]" if command.operands else ""
    parts = [f"usage: mgraph {command.name}{operands} [options]\n\n{command.summary}"]
    listed = {
        title: [option for option in section if option.support is Support.YES]
        for title, section in command.sections.items()
    }
    for title, options in listed.items():
        if options:
            parts.append("\n".join([f"{title}:", *map(_help_entry, options)]))
    absent = [f"--{o.name}" for o in command.options.values() if o.support is Support.LATER]
    if absent:
        text = f"Marian's, not supported yet: {' '.join(absent)}"
        parts.append(textwrap.fill(text, 100, break_on_hyphens=False))
    if command.examples:
        lines = [f"  {line}\n      {what}" for line, what in command.examples]
        parts.append("\n".join(["Examples:", *lines]))
    return "\n\n".join(parts)


def _help_entry(option: Option) -> str:
    names = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
    kind = "" if option.kind is bool else f" {option.kind.__name__.upper()}"
    default = option.default
    if isinstance(default, tuple):
        default = " ".join(default)
    shown = f"={default}" if option.kind is not bool and default != "" else ""
    left = f"  {names}{kind}{shown}{' ...' if option.many else ''}"
    gap = "\n" + " " * 36 if len(left) > 34 else " " * (36 - len(left))
    return f"{left}{gap}{option.help}"


def _read_command_line(command: Command, argv: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    parser = _Parser(prog=f"mgraph {command.name}", allow_abbrev=False, add_help=False)
    for option in command.options.values():
        names = [f"--{option.name}"] + ([f"-{option.short}"] if option.short else [])
        bare = "true" if option.kind is bool else option.implicit
        if option.kind is bool and command.operands:  # the word after it is an operand, not its value
            parser.add_argument(*names, dest=option.name, action="append_const", const="true")
        elif option.many:
            parser.add_argument(
                *names, dest=option.name, action="extend", nargs="*" if option.implicit else "+"
            )
        elif bare is not None:
            parser.add_argument(*names, dest=option.name, action="append", nargs="?", const=bare)
        else:
            parser.add_argument(*names, dest=option.name, action="append")
    namespace, rest = parser.parse_known_args(_with_options_as_values(argv))
    operands = tuple(word for word in rest if not word.startswith("-")) if command.operands else ()
    if len(operands) < len(rest):
        raise OptionError(_unexpected(command, rest))
    given = {command.options[name]: words for name, words in vars(namespace).items() if words is not None}
    values = {option.name: option.read(words or [option.implicit or ""]) for option, words in given.items()}
    return values, operands


def _with_options_as_values(argv: Sequence[str]) -> list[str]:
    """`argv` where ``--sentencepiece-options --name=value`` is one word: its value looks like an option."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] == "--sentencepiece-options":
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _unexpected(command: Command, words: Sequence[str]) -> str:
    for word in words:
        if word.startswith("--"):
            return f"unknown option {nearest(word[2:].partition('=')[0], command.options)}"
        if word.startswith("-") and word != "-":
            return f"unknown option {word}"
    return f"unexpected argument '{words[0]}'"


def _with_paths(values: Mapping[str, Any], change: Any) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name == "shortlist" and value:  # a path and numbers
            yield name, (_changed(value[0], change), *value[1:])
        elif name in PATHS and isinstance(value, tuple):
            yield name, tuple(_changed(path, change) for path in value)
        elif name in PATHS:
            yield name, _changed(value, change)
        else:
            yield name, value


def _changed(path: str, change: Any) -> str:
    special = STANDARD_INPUT + STANDARD_OUTPUT
    return path if not path or path in special else change(path)


def _interpolated(path: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise OptionError(f"there is no environment variable {name}, wanted by path '{path}'")
        return os.environ[name]

    return re.sub(r"\$\{([^}]*)\}", value, path)
