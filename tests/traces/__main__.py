"""``python -m tests.traces``: make the traces with Marian, and compare them with our own training."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

import jax

import mgraph

from .check import check
from .draws import draw
from .make import make
from .row import Row
from .rows import ROWS, SMALL


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m tests.traces", description=__doc__)
    top.add_argument("folder", type=Path, help="where the traces are, or are to be made")
    top.add_argument("--make", action="store_true", help="train with pymarian first")
    top.add_argument("--check", action="store_true", help="train ourselves and compare")
    top.add_argument("--rows", nargs="+", default=[], metavar="NAME", help="these rows only")
    top.add_argument("--small", action="store_true", help="the rows of the tests instead")
    top.add_argument(
        "--random", nargs=2, type=int, metavar=("COUNT", "SEED"), help="so many drawn rows instead"
    )
    return top


def outcome(row: Row, folder: Path, may_refuse: bool) -> str:
    """How near we come to Marian, after "=" or "≠". may_refuse: whether Marian may refuse to train it."""
    refused = folder / row.name / "refused.txt"
    if refused.exists():
        return f"{'=' if may_refuse else '≠'} Marian refuses: {refused.read_text().strip()}"
    try:
        return f"= {check(row, folder)}"
    except Exception as error:
        return f"≠ {type(error).__name__}: {error}"


def main() -> int:
    """Print a line for each row; return 1 if any differs from Marian's."""
    options = parser().parse_args()
    if options.make and not shutil.which("pymarian"):
        parser().error("--make needs the command pymarian, of `pip install pymarian`")
    table = draw(*options.random) if options.random else SMALL if options.small else ROWS
    wanted = [row for row in table if not options.rows or row.name in options.rows]
    if options.make:
        make(options.folder, wanted)
    differ = 0
    for row in wanted if options.check else ():
        since = time.monotonic()
        found = outcome(row, options.folder, may_refuse=bool(options.random))
        differ += found.startswith("≠")
        print(f"{row.name:22} {found}; {time.monotonic() - since:.0f} s", flush=True)
        mgraph.clear_programs()
        jax.clear_caches()
    if options.check:
        print(f"{len(wanted) - differ} of {len(wanted)} rows are equal")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
