"""The subcommands of ``mgraph``: each module has ``COMMAND`` and ``run(options, argv)``, which returns the
exit code, None for 0."""

from __future__ import annotations

NAMES = (
    "train",
    "decode",
    "score",
    "evaluate",
    "embed",
    "server",
    "vocab",
    "convert",
    "align",
    "shortlist",
    "distill",
    "average",
    "export",
    "gradcheck",
    "operators",
    "options",
    "parameters",
    "diff",
    "demo",
)
"""The commands, in the order in which ``mgraph --help`` lists them; each has a module of its name."""
