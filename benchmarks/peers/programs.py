"""The peers that are separate programs: the options that say where they are, and which are missing."""

from __future__ import annotations

import argparse
import shutil
from typing import NamedTuple

from benchmarks.measuring import positive


class Programs(NamedTuple):
    """Paths; empty for a missing program."""

    pymarian: str
    ctranslate2_python: str


def add_pymarian(parser: argparse.ArgumentParser) -> None:
    """The option that says where Marian is."""
    parser.add_argument(
        "--pymarian", default="pymarian", help="the program (the one on PATH; 'none': Marian is left out)"
    )


def add_programs(parser: argparse.ArgumentParser) -> None:
    """The options that say where Marian and CTranslate2 are."""
    add_pymarian(parser)
    parser.add_argument(
        "--ctranslate2-python", default="", help="a Python that has the package ctranslate2 (left out)"
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """The option that says how many threads rows have."""
    parser.add_argument(
        "--threads",
        type=positive,
        nargs="+",
        default=[2],
        help="of the CPU (2); '2 1' for both; ours takes a GPU if there is one",
    )


def find_pymarian(given: argparse.Namespace) -> str:
    """The path of the program given as ``--pymarian``. If it is missing, prints a message, or exits if
    another program than the default was asked for."""
    found = shutil.which(given.pymarian) or ""
    if not found and given.pymarian not in ("pymarian", "none"):
        raise SystemExit(f"--pymarian: there is no program {given.pymarian!r}")
    if not found:
        print("no pymarian: rows of Marian are left out (--pymarian PATH)")
    return found


def find_programs(given: argparse.Namespace) -> Programs:
    """The paths of the programs in the options of ``add_programs``; prints a message for each missing one."""
    marian, ctranslate2 = find_pymarian(given), shutil.which(given.ctranslate2_python) or ""
    if given.ctranslate2_python and not ctranslate2:
        raise SystemExit(f"--ctranslate2-python: there is no program {given.ctranslate2_python!r}")
    if not ctranslate2:
        print("no Python with CTranslate2: its rows are left out (--ctranslate2-python PATH)")
    return Programs(marian, ctranslate2)
