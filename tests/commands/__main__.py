"""``python -m tests.commands``: draw commands, and compare what Marian prints with what we print."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

import jax

import mgraph

from .draws import Command, draw
from .outputs import differences, marian, ours

SHOWN, SAID = 3, 300


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m tests.commands", description=__doc__)
    top.add_argument("count", type=int, help="how many commands")
    top.add_argument("seed", type=int)
    top.add_argument("folder", type=Path, help="where the texts of those are kept that differ")
    return top


def outcome(command: Command, folder: Path) -> str:
    """How the outputs compare: "=" or "≠" first. If Marian fails, nothing can differ."""
    folder.mkdir(parents=True)
    for name, text in command.files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    (folder / "stdin").write_text(command.stdin, encoding="utf-8", newline="")
    theirs = marian(command, folder)
    try:
        own = ours(command, folder)
    except Exception as error:
        return f"≠ {type(error).__name__}: {error}"
    reason = f"{own.status}: {own.messages.strip()[-SAID:]}" if own.status else "0"
    if theirs.status:
        return f"= Marian ends with {theirs.status}, we with {reason}"
    if own.status:
        return f"≠ we end with {reason}"
    found = differences(theirs, own)
    lines = "".join(f"\n  Marian: {one}\n  mgraph: {other}" for one, other in found[:SHOWN])
    return f"≠ {len(found)} lines:{lines}" if found else "="


def main() -> int:
    """Print a line for each command; return 1 if any output differs from Marian's."""
    options = parser().parse_args()
    if not shutil.which("pymarian"):
        parser().error("the command pymarian is needed, of `pip install pymarian`")
    differ = 0
    for number, command in enumerate(draw(options.count, options.seed)):
        folder = options.folder.resolve() / f"{options.seed}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        found = outcome(command, folder)
        print(f"{number:4} {command.name:20} {found}", flush=True)
        if found.startswith("≠"):
            differ += 1
            print(f"  cd {folder}; pymarian {shlex.join(command.one_by_one)} < stdin")
        else:
            shutil.rmtree(folder)
        mgraph.clear_programs()
        jax.clear_caches()
    print(f"{options.count - differ} of {options.count} commands print what Marian prints")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
