"""Every example runs; its own assertions are the test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path: Path) -> None:
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=path.parent.parent)
    assert run.returncode == 0, run.stderr
