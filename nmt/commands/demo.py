"""``mgraph demo``: a graph, its gradients and a translation, in two minutes."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.commands.common import asks_for_help
from nmt.settings import Command, Option
from nmt.settings.config import parse

COMMAND = Command(
    "demo",
    "a graph, its gradients checked, and real translations, in under two minutes",
    {"Demo": (Option("sentences", int, 300, "held-out numbers to translate", least=1),)},
)


def run(argv: Sequence[str]) -> int | None:
    """Run the demo; the exit code is 1 if a gradient is wrong or too few translations are right."""
    if asks_for_help(COMMAND, argv):
        return None
    values = parse(COMMAND, argv)
    from nmt.numbers import demo

    return None if demo.run(values["sentences"]) else 1
