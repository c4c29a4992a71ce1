"""Where things lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
"""Small files that Marian, PyTorch and others made, with the scripts that made them."""
SHIPPED = ROOT / "nmt" / "numbers" / "model"
"""The model of number words that comes with the package."""
