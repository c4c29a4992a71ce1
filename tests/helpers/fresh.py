"""Code in a fresh Python process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.places import ROOT


def python(code: str, *words: str, cwd: Path = ROOT, **environment: str) -> str:
    """What a fresh Python prints when it runs ``code`` with these arguments and environment variables."""
    command, variables = [sys.executable, "-c", code, *words], os.environ | environment
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
