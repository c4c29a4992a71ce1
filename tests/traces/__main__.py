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
from .make import make
from .rows import ROWS, SMALL


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m tests.traces", description=__doc__)
    top.add_argument("folder", type=Path, help="where the traces are, or are to be made")
    top.add_argument("--make", action="store_true", help="train with pymarian first")
    top.add_argument("--check", action="store_true", help="train ourselves and compare")
    top.add_argument("--rows", nargs="+", default=[], metavar="NAME", help="these rows only")
    top.add_argument("--small", action="store_true", help="the rows of the tests instead")
    return top


def main() -> int:
    """Print a line for each row; 1 if one is not as Marian's."""
    options = parser().parse_args()
    if options.make and not shutil.which("pymarian"):
        parser().error("--make needs the command pymarian, of `pip install pymarian`")
    wanted = [
        row for row in (SMALL if options.small else ROWS) if not options.rows or row.name in options.rows
    ]
    if options.make:
        make(options.folder, wanted)
    differ = 0
    for row in wanted if options.check else ():
        since = time.monotonic()
        try:
            found = f"= {check(row, options.folder)}"
        except Exception as error:
            found = f"≠ {type(error).__name__}: {error}"
        differ += found.startswith("≠")
        print(f"{row.name:22} {found}; {time.monotonic() - since:.0f} s", flush=True)
        mgraph.clear_programs()
        jax.clear_caches()
    if options.check:
        print(f"{len(wanted) - differ} of {len(wanted)} rows are equal")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
