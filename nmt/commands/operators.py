"""``mgraph operators``: list every operator with its Marian name, shape rule and gradient."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nmt.commands.common import Json
from nmt.settings import Command

COMMAND = Command(
    "operators",
    "print the page that compares Marian's operators and commands with mgraph's, as Markdown",
    Json,
)


def run(options: Json, argv: Sequence[str]) -> None:
    """Print the page, or its content as JSON."""
    from nmt.commands import catalogue, correspondence

    if options.json:
        print(json.dumps(catalogue.as_json(), indent=2))
    else:
        print(catalogue.markdown() + correspondence.markdown(), end="")
