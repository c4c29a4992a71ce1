"""``mgraph diff``: compare two dumps or models and name the first node that differs."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.commands.common import asks_for_help
from nmt.settings import Command, Option, OptionError, require_readable
from nmt.settings.config import parse

COMMAND = Command(
    "diff",
    "compare two dumps or two models node by node; the exit code is 1 if they differ",
    {
        "Tolerance": (
            Option("rtol", float, 1e-5, "relative tolerance: |a - b| may be atol + rtol |b|", least=0),
            Option("atol", float, 1e-6, "absolute tolerance", least=0),
        ),
    },
    operands="FILE",
    examples=(
        ("mgraph diff before.npz after.npz", "two dumps of graph.dump(path)"),
        ("mgraph diff model.npz model.bin", "two models"),
    ),
)


def run(argv: Sequence[str]) -> int | None:
    """Print the differences; the exit code is 1 if there are any."""
    if asks_for_help(COMMAND, argv):
        return None
    values = parse(COMMAND, argv)
    if len(values["operands"]) != 2:
        raise OptionError(f"two files are needed, got {len(values['operands'])}")
    require_readable("FILE", values["operands"])
    from mgraph.files.dumps import print_diff

    first, second = values["operands"]
    return print_diff(first, second, values["rtol"], values["atol"])
