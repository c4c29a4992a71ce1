"""The text of ``--help``."""

from __future__ import annotations

import textwrap
from typing import Any

from nmt.settings.config import Command
from nmt.settings.option import Option, Support

WIDTH, COLUMN = 100, 36  # of a line, and where the meaning of an option begins


def help_text(command: Command[Any]) -> str:
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
        parts.append(textwrap.fill(text, WIDTH, break_on_hyphens=False))
    if command.examples:
        lines = [f"  {line}\n      {what}" for line, what in command.examples]
        parts.append("\n".join(["Examples:", *lines]))
    return "\n\n".join(parts)


def _help_entry(option: Option) -> str:
    names = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
    kind = "" if option.kind is bool else f" {option.kind.__name__.upper()}"
    default = " ".join(map(str, option.default)) if option.many else option.default
    shown = f"={default}" if option.kind is not bool and default != "" else "=true" if default is True else ""
    left = f"  {names}{kind}{shown}{' ...' if option.many else ''}"
    gap = "\n" + " " * COLUMN if len(left) > COLUMN - 2 else " " * (COLUMN - len(left))
    text = (
        f"{option.help}: {', '.join(filter(None, option.choices))}"
        if option.choices and not option.open
        else option.help
    )
    lines = textwrap.wrap(text, WIDTH - COLUMN, break_on_hyphens=False)
    return f"{left}{gap}" + ("\n" + " " * COLUMN).join(lines)
