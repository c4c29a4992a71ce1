"""``mgraph options``: list Marian's options and what mgraph does with each, or only what is refused."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nmt.commands import convert, vocab
from nmt.settings import DECODE, SCORE, TRAIN, Command, Option, Options, Support, option
from nmt.settings.option import options_of
from nmt.settings.sections import Logging

COMMANDS: tuple[Command[Any], ...] = (TRAIN, DECODE, SCORE, vocab.COMMAND, convert.COMMAND)
"""Marian's commands whose options are listed."""
_LISTED = "train, decode, score, vocab and convert"
LOG = tuple(options_of(Logging))
OWN = {
    "vocab": ("output", "sentencepiece-options", "sentencepiece-max-lines", "seed", *LOG),
    "convert": ("zero-start", *LOG),
}
"""The options of these commands that Marian's commands do not have."""
WIDTH = 110


class ListedOptions(Options):
    """What to list."""

    title = "List"

    refused: bool = option(False, "only the refused and ignored ones, as a page of Markdown", command=True)


COMMAND = Command(
    "options",
    f"list the options of Marian's {_LISTED} and what mgraph does with each",
    ListedOptions,
    examples=(
        ("mgraph options", "every option of these commands: taken, ignored or refused, and why"),
        ("mgraph options --refused", "only what mgraph refuses or ignores, with the reasons"),
    ),
)


def run(options: ListedOptions, argv: Sequence[str]) -> None:
    """Print the list."""
    print(refused() if options.refused else listed(), end="")


def marians(command: Command[Any]) -> tuple[Option, ...]:
    """The options that Marian's command of the same name has, too."""
    own = OWN.get(command.name, ())
    return tuple(
        found
        for found in command.options.values()
        if found.dumped and not found.kept and found.name not in own
    )


def treatment(found: Option) -> str:
    """What mgraph does with an option, in a few words."""
    if found.support is Support.REFUSED:
        return f"refused: {found.reason}"
    if found.support is Support.IGNORED:
        return f"ignored: {found.reason}"
    if found.support is Support.SAVED:
        return "taken for a model file without model options, or with --ignore-model-config"
    if found.absent:
        return f"taken, except {', '.join(found.absent)}"
    return "taken"


def listed() -> str:
    """All options by command, each with its ``treatment``."""
    parts = []
    for command in COMMANDS:
        known = marians(command)
        width = max(len(found.name) for found in known) + 4
        lines = [f"mgraph {command.name}"]
        for found in known:
            head = f"  --{found.name}".ljust(width + 2)
            lines += textwrap.wrap(
                treatment(found), WIDTH, initial_indent=head, subsequent_indent=" " * len(head)
            )
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def refused() -> str:
    """The page about what is refused or has no effect, as Markdown."""
    return "\n".join(
        [
            "# What Marian has and mgraph has not",
            "",
            "Printed from the code by `mgraph options --refused`; a test keeps this file up to date.",
            f"`mgraph options` lists the options of Marian's {_LISTED} and what mgraph does with each.",
            "",
            "## Refused options",
            "",
            "They are accepted at Marian's default, because Marian's configurations contain them.",
            "",
            *_table("option", _with_support(Support.REFUSED)),
            "",
            "## Refused values",
            "",
            *_table("value", _absent_values()),
            "",
            "## Options without effect",
            "",
            "They are accepted, and a line in the log names them.",
            "",
            *_table("option", _with_support(Support.IGNORED)),
            "",
        ]
    )


def _with_support(support: Support) -> Iterator[tuple[str, str, str]]:
    """Option, command and reason, for each option with this support."""
    for command in COMMANDS:
        for found in marians(command):
            if found.support is support:
                yield f"--{found.name}", command.name, found.reason


def _absent_values() -> Iterator[tuple[str, str, str]]:
    """Option with value, command and reason, for each refused value."""
    for command in COMMANDS:
        for found in marians(command):
            for value, reason in found.absent.items():
                yield f"--{found.name} {value}", command.name, reason


def _table(head: str, entries: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """One row for each reason, with all entries that have it."""
    rows: dict[str, dict[str, list[str]]] = {}
    for what, command, reason in entries:
        rows.setdefault(reason, {}).setdefault(what, []).append(command)
    yield f"| {head} | command | why |"
    yield "| --- | --- | --- |"
    for reason, named in rows.items():
        commands = dict.fromkeys(command for found in named.values() for command in found)
        yield f"| {', '.join(f'`{what}`' for what in named)} | {', '.join(commands)} | {reason} |"
