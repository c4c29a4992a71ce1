"""Every example runs; its own assertions are the test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

SLOW = """
08_bridges 09_train_numbers 10_own_loop 11_digits 12_characters 13_rest_server 14_distill_numbers
15_readme_pictures
""".split()
EXAMPLES = [
    pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else (), id=path.stem)
    for path in sorted((ROOT / "examples").glob("*.py"))
]
# What an example is given here so that it takes seconds, not minutes.
ARGUMENTS = {
    "09_train_numbers": ["--after", "3u", "--lines", "128"],
    "14_distill_numbers": ["--lines", "200", "--after", "3u", "--tune-after", "2u", "--heldout", "6"],
    "15_readme_pictures": ["--after", "20u"],
}


@pytest.mark.parametrize("path", EXAMPLES)
def test_example(path: Path) -> None:
    command = [sys.executable, str(path), *ARGUMENTS.get(path.stem, [])]
    run = subprocess.run(command, capture_output=True, text=True, cwd=path.parent.parent)
    assert run.returncode == 0, run.stderr
