"""``mgraph diff``: compare two dumps or models and name the first node that differs."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.commands.common import Operands
from nmt.settings import Command, OptionError, option, require_readable


class DiffOptions(Operands):
    """The options of ``mgraph diff``."""

    title = "Tolerance"

    rtol: float = option(1e-5, "relative tolerance: |a - b| may be atol + rtol |b|", least=0)
    atol: float = option(1e-6, "absolute tolerance", least=0)


COMMAND = Command(
    "diff",
    "compare two dumps or two models node by node; the exit code is 1 if they differ",
    DiffOptions,
    operands="FILE",
    examples=(
        ("mgraph diff before.npz after.npz", "two dumps of graph.dump(path)"),
        ("mgraph diff model.npz model.bin", "two models"),
    ),
)


def run(options: DiffOptions, argv: Sequence[str]) -> int | None:
    """Print the differences; the exit code is 1 if there are any."""
    if len(options.operands) != 2:
        raise OptionError(f"two files are needed, got {len(options.operands)}")
    require_readable("FILE", options.operands)
    from mgraph.files.dumps import print_diff

    first, second = options.operands
    return print_diff(first, second, options.rtol, options.atol)
