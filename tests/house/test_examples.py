"""Every example runs; its own assertions are the test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# What an example is given here so that it takes seconds, not minutes.
ARGUMENTS = {"09_train_numbers": ["--after", "3u", "--lines", "128"]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path: Path) -> None:
    command = [sys.executable, str(path), *ARGUMENTS.get(path.stem, [])]
    run = subprocess.run(command, capture_output=True, text=True, cwd=path.parent.parent)
    assert run.returncode == 0, run.stderr
