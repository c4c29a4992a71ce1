"""Shared code of commands: help, greeting, checks, output lines, the log of compilations."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

from mgraph import CompileStats, __version__, compile_stats
from nmt.settings import Command, OptionError, Options, option
from nmt.settings.config import log_notices
from nmt.settings.printing import about, help_text
from nmt.text.lines import STANDARD_INPUT, STANDARD_OUTPUT, naming

logger = logging.getLogger("nmt")

C = TypeVar("C", bound=Options)
MODELS = (".npz", ".bin", ".safetensors")


class Json(Options):
    """The format of the report."""

    title = "Output"

    json: bool = option(False, "print JSON instead of a table", command=True)


class Operands(Options):
    """The words of a command line that are not options or their values."""

    operands: tuple[str, ...] = ()


def require_distinct(inputs: Mapping[str, Sequence[str]], output: str, option: str = "--output") -> None:
    """OptionError if standard input is given twice, or if the output would overwrite an input.

    inputs: the paths of each option that names files to read. option: the option that gives ``output``.
    """
    streams = [name for name, paths in inputs.items() for path in paths if path in STANDARD_INPUT]
    if len(streams) > 1:
        raise OptionError(f"{' and '.join(dict.fromkeys(streams))}: standard input can be read only once")
    if output in STANDARD_OUTPUT or not os.path.isfile(output):
        return
    for name, paths in inputs.items():
        for path in paths:
            if path not in STANDARD_INPUT and os.path.isfile(path) and os.path.samefile(path, output):
                raise OptionError(
                    f"{option}: {output} is also read by {name}, and writing would empty it first"
                )


def require_model_name(option: str, path: str) -> None:
    """OptionError unless the name determines the format of the model to write."""
    if not path.endswith(MODELS):
        raise OptionError(f"{option}: expected a name that ends in {', '.join(MODELS)}, got {path}")


def write(output: BinaryIO, text: str) -> None:
    """Write a line and flush the output. OSError, naming it, if that fails, as on a full disk."""
    with naming("standard output"):  # files name themselves
        output.write(text.encode("utf-8", "surrogateescape") + b"\n")
        output.flush()


def greet(command: Command[C], argv: Sequence[str], options: C) -> None:
    """Log the command line, and which options have no effect."""
    logger.info("[mgraph] %s %s %s", __version__, command.name, shlex.join(argv))
    log_notices(command, options)


def report_programs(before: CompileStats) -> None:
    """Log the compilations since ``before``; the seconds are summed over all threads."""
    done = compile_stats() - before
    logger.info(
        "[programs] Compiled %d, read %d from the compilation cache, in %.2fs",
        done.misses - done.read,
        done.read,
        done.trace_seconds + done.compile_seconds,
    )


def asks_for_help(command: Command[Any], argv: Sequence[str]) -> bool:
    """Print the help or other information if the command line asks for it; else return False."""
    if "-h" in argv or "--help" in argv:
        print(help_text(command))
        return True
    if "--version" in argv:
        print(f"mgraph {__version__}")
        return True
    text = about(command, argv) if "authors" in command.options else ""
    if text:
        print(text)
    return bool(text)
