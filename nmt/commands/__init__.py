"""The sub-commands of ``mgraph``: each module has its options, ``COMMAND``, and ``run(argv)``."""

from __future__ import annotations

NAMES = (
    "train",
    "decode",
    "score",
    "vocab",
    "convert",
    "export",
    "gradcheck",
    "operators",
    "parameters",
    "diff",
    "demo",
)
"""The commands, in the order in which ``mgraph --help`` lists them; each is the module of its name."""
