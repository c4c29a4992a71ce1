"""The options of ``Translator``, ``Scorer`` and ``Trainer`` as keywords with types, for editors and checkers.

``python -m tests.helpers.keywords > nmt/settings/keywords.py`` makes them from the options' declarations.
"""

from __future__ import annotations

import json

from nmt.settings import DECODE, SCORE, TRAIN, Option
from nmt.settings.config import PATHS, Command
from nmt.settings.option import NAME

HEAD = '''\
"""The options of ``Translator``, ``Scorer`` and ``Trainer`` as keywords with types, for editors and checkers.

Made from the declarations of the options by ``python -m tests.helpers.keywords``; do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

Path: TypeAlias = str | os.PathLike[str]
Paths: TypeAlias = Path | Sequence[Path]
Word: TypeAlias = str | float | os.PathLike[str]
"""What becomes a text as on the command line."""
Words: TypeAlias = Word | Sequence[Word]
Whole: TypeAlias = int | Sequence[int]
Real: TypeAlias = float | Sequence[float]
Maps: TypeAlias = Mapping[str, object] | Sequence[Mapping[str, object]]
Named: TypeAlias = Words | Mapping[str, object]
"""``NAME=VALUE``, or a map."""
'''
OVERRIDES = '''\
class OverrideKeywords(DecodeKeywords, total=False):
    """What overrides the configuration of a directory or a file."""

    models: Paths
    vocabs: Paths


class ScoreOverrideKeywords(ScoreKeywords, total=False):
    """What overrides the files of a directory."""

    model: Path
    vocabs: Paths
'''
OWN = {"decode": ("models", "vocabs", "mbr"), "score": ("model", "vocabs"), "train": ()}
"""Options that the constructors declare as separate parameters."""


def annotation(option: Option) -> str:
    """The type of the values that a keyword takes."""
    if option.kind is dict:
        return "Maps" if option.many else "Mapping[str, object]"
    if option.kind is str and option.name in PATHS:
        return "Paths" if option.many else "Path"
    if option.named:
        return "Named"
    if option.many:
        return {int: "Whole", float: "Real"}.get(option.kind, "Words")
    if option.kind is str:
        closed = option.choices and not option.open and not any(c.endswith(NAME) for c in option.choices)
        words = [*option.choices, option.default] if closed else []
        return f"Literal[{json.dumps([*dict.fromkeys(words)])[1:-1]}]" if words else "Word"
    return option.kind.__name__


def line(name: str, kind: str) -> str:
    """A field, broken into lines as ruff does it."""
    whole = f"    {name}: {kind}\n"
    return whole if len(whole) <= 111 else whole.replace("[", "[\n        ").replace("]", "\n    ]")


def keywords(command: Command) -> dict[str, str]:
    """The types of a command's options by keyword."""
    options = command.python_options().items()
    return {name: annotation(option) for name, option in options if name not in OWN[command.name]}


def page() -> str:
    """The text of the module."""
    tables = {command.name: keywords(command) for command in (DECODE, SCORE, TRAIN)}
    groups: dict[str, tuple[str, ...]] = {
        "SharedKeywords": ("decode", "score", "train"),
        "InferenceKeywords": ("decode", "score"),
        "DecodeKeywords": ("decode",),
        "ScoreKeywords": ("score",),
        "TrainKeywords": ("train",),
    }
    summaries = {
        "SharedKeywords": "Options that all three take.",
        "InferenceKeywords": "Options that ``Translator`` and ``Scorer`` take.",
        "DecodeKeywords": "The options of ``Translator``, as of ``mgraph decode``.",
        "ScoreKeywords": "The options of ``Scorer``, as of ``mgraph score``.",
        "TrainKeywords": "The options of ``Trainer``, as of ``mgraph train``.",
    }
    bases = {
        "SharedKeywords": "TypedDict, total=False",
        "InferenceKeywords": "SharedKeywords, total=False",
        "DecodeKeywords": "InferenceKeywords, total=False",
        "ScoreKeywords": "InferenceKeywords, total=False",
        "TrainKeywords": "SharedKeywords, total=False",
    }
    done: dict[str, set[str]] = {name: set() for name in tables}
    parts = [HEAD]
    for group, commands in groups.items():
        first = tables[commands[0]]
        chosen = [
            name
            for name, kind in first.items()
            if name not in done[commands[0]] and all(tables[c].get(name) == kind for c in commands)
        ]
        for command in commands:
            done[command] |= set(chosen)
        lines = "".join(line(name, first[name]) for name in chosen)
        parts.append(f'class {group}({bases[group]}):\n    """{summaries[group]}"""\n\n{lines}')
    parts.append(OVERRIDES)
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
