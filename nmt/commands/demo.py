"""``mgraph demo``: a graph, its gradients checked, and real translations, in under two minutes."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.numbers.corpus import HELDOUT
from nmt.settings import Command, Options, option


class DemoOptions(Options):
    """The options of ``mgraph demo``."""

    title = "Demo"

    sentences: int = option(300, "held-out numbers to translate", least=1, most=HELDOUT)


COMMAND = Command(
    "demo", "a graph, its gradients checked, and real translations, in under two minutes", DemoOptions
)


def run(options: DemoOptions, argv: Sequence[str]) -> int | None:
    """Run the demo; the exit code is 1 if a gradient is wrong or too few translations are right."""
    from nmt.numbers import demo

    return None if demo.run(options.sentences) else 1
