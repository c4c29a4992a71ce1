"""The command line ``mgraph``: runs a subcommand and returns its exit code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from jax.errors import JaxRuntimeError

from mgraph import MGraphError, __version__
from nmt.commands import NAMES
from nmt.commands.common import asks_for_help, write
from nmt.runtime.failures import reason
from nmt.settings import OptionError, nearest
from nmt.settings.config import checked, read
from nmt.settings.option import UnknownOptionError
from nmt.settings.printing import dumped
from nmt.text.lines import flush_standard_output, open_output, silence_standard_output

USAGE_ERROR = 2
RUN_TIME_ERROR = 1
PIPE_CLOSED = 141  # a shell's exit code for a program ended by SIGPIPE
_ASK = ("-h", "--help", "--version")


def run(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand named first in ``argv`` (``sys.argv[1:]`` if None), and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0] if words else ""
    if not name:
        print(_overview(), file=sys.stderr)
        return USAGE_ERROR
    if name not in (*NAMES, *_ASK):
        what = f"unknown command {nearest(name, (*NAMES, *_ASK), prefix='')}"
        print(f"mgraph: error: {what} (commands: {', '.join(NAMES)})", file=sys.stderr)
        return USAGE_ERROR
    try:
        code = _answered(name, words[1:])
        flush_standard_output()
        return code
    except UnknownOptionError as error:
        return _failed(name, reason(error) + _elsewhere(error.name), USAGE_ERROR)
    except OptionError as error:
        return _failed(name, reason(error), USAGE_ERROR)
    except BrokenPipeError:
        silence_standard_output()
        return PIPE_CLOSED
    except (OSError, JaxRuntimeError, MGraphError) as error:
        return _failed(name, reason(error))


def _answered(name: str, argv: Sequence[str]) -> int:
    if name in _ASK:
        print(f"mgraph {__version__}" if name == "--version" else _overview())
        return 0
    module = _module(name)
    if asks_for_help(module.COMMAND, argv):
        return 0
    given, operands = read(module.COMMAND, argv)  # once: a configuration may come from a pipe
    text = dumped(module.COMMAND, given)
    if text:
        with open_output("stdout") as output:
            write(output, text)  # as bytes: paths need not be in the encoding of the terminal
        return 0
    return module.run(checked(module.COMMAND, given, operands), argv) or 0


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"nmt.commands.{name}")


def _elsewhere(name: str) -> str:
    """The commands that have an option, as a hint for one that has not; empty if none has."""
    others = [other for other in NAMES if name in _module(other).COMMAND.options]
    return f" (--{name} is an option of mgraph {', '.join(others)})" if others else ""


def _failed(name: str, said: str, code: int = RUN_TIME_ERROR) -> int:
    program = "mgraph" if name in _ASK else f"mgraph {name}"
    print(f"{program}: error: {said}", file=sys.stderr)
    return code


def _overview() -> str:
    entries = [
        f"  {name:10}  {(_module(name).__doc__ or '').partition(': ')[2].splitlines()[0]}" for name in NAMES
    ]
    return "\n".join(
        [
            "usage: mgraph COMMAND [options]",
            "",
            *entries,
            "",
            "mgraph COMMAND --help lists the options of a command",
        ]
    )
