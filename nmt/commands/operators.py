"""``mgraph operators``: list every operator with its Marian name, shape rule and gradient."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nmt.commands.common import Json, asks_for_help
from nmt.settings import Command
from nmt.settings.config import parse

COMMAND = Command(
    "operators",
    "print the page that compares Marian's operators with mgraph's, as Markdown",
    Json,
)


def run(argv: Sequence[str]) -> int | None:
    """Print the page, or its content as JSON."""
    if asks_for_help(COMMAND, argv):
        return None
    options = parse(COMMAND, argv)
    from nmt.commands import catalogue

    if options.json:
        print(json.dumps(catalogue.as_json(), indent=2))
    else:
        print(catalogue.markdown(), end="")
    return None
