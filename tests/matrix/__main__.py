"""``python -m tests.matrix``: make the matrix with Marian, and compare its results with ours."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

import mgraph

from .check import outcome
from .draws import draw
from .make import make
from .row import Row
from .rows import ENSEMBLES, ROWS, Ensemble
from .small import SMALL


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    top.add_argument("folder", type=Path, help="where the rows are, or are to be made")
    top.add_argument("--rows", nargs="+", default=[], metavar="NAME", help="these rows only")
    top.add_argument("--small", action="store_true", help="the rows of the tests instead")
    top.add_argument(
        "--random", nargs=2, type=int, metavar=("COUNT", "SEED"), help="so many drawn rows instead"
    )
    top.add_argument("--make", action="store_true", help="train and decode with pymarian first")
    return top


def main() -> int:
    """Print a line for each row; return 1 if any differs from Marian's."""
    options = parser().parse_args()
    if options.make and not shutil.which("pymarian"):
        parser().error("--make needs the command pymarian, of `pip install pymarian`")
    table: Sequence[Row | Ensemble] = (*ROWS, *ENSEMBLES)
    if options.small or options.random:
        table = SMALL if options.small else draw(*options.random)
    wanted = [row for row in table if not options.rows or row.name in options.rows]
    if options.make:
        make(options.folder, wanted, small=options.small)
    differ = 0
    for row in wanted:
        found = outcome(row, options.folder)
        differ += not found.equal
        print(f"{row.name:32} {found}", flush=True)
        mgraph.clear_programs()
        jax.clear_caches()
    print(f"{len(wanted) - differ} of {len(wanted)} rows are equal")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
