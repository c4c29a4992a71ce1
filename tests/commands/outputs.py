"""What Marian and mgraph print for a command, and where the two differ."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from nmt.cli import main

from .draws import Command

NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")
RELATIVE, ABSOLUTE = 2e-4, 2e-6


class Output(NamedTuple):
    """What a command printed, its messages, and its exit status."""

    text: str
    messages: str
    status: int


def marian(command: Command, folder: Path) -> Output:
    """Run ``pymarian`` in the folder of the command's files, on one thread, sentence by sentence."""
    done = subprocess.run(
        ["pymarian", *command.one_by_one, "--cpu-threads", "1", "--quiet"],
        input=command.stdin.encode(),
        capture_output=True,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return Output(
        *(stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr)), done.returncode
    )


def ours(command: Command, folder: Path) -> Output:
    """Run our command line in this process, in batches, in the folder of the command's files."""
    exact = command.marian_exact and command.arguments[0] == "decode"
    words = [*command.arguments, *(["--marian-exact"] if exact else []), "--quiet"]
    written, messages, before = io.BytesIO(), io.StringIO(), sys.stdin
    printed = io.TextIOWrapper(written, encoding="utf-8", newline="")
    sys.stdin = io.TextIOWrapper(io.BytesIO(command.stdin.encode()), encoding="utf-8", newline="")
    try:
        with chdir(folder), redirect_stdout(printed), redirect_stderr(messages):
            status = main(words)
    finally:
        sys.stdin = before
    printed.flush()
    return Output(written.getvalue().decode(), messages.getvalue(), status)


def differences(theirs: Output, ours: Output) -> Sequence[tuple[str, str]]:
    """Pairs of lines that differ in more than the last digits of numbers, Marian's line first."""
    lines = zip_longest(theirs.text.split("\n"), ours.text.split("\n"), fillvalue="(no such line)")
    return [(one, other) for one, other in lines if not _same(one, other)]


def _same(one: str, other: str) -> bool:
    if NUMBER.sub("0.0", one) != NUMBER.sub("0.0", other):
        return False
    pairs = zip(*([float(number) for number in NUMBER.findall(line)] for line in (one, other)), strict=True)
    return all(abs(x - y) <= RELATIVE * max(1, abs(x)) + ABSOLUTE for x, y in pairs)
