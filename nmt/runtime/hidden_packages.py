"""A user's own ``layers.py`` or ``mgraph.py``, which Python imports in place of our package."""

from __future__ import annotations

import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder that our packages are in."""


def note_hidden(error: ImportError) -> None:
    """Add to an ImportError a note on which file hides one of our packages."""
    for name in ("mgraph", "layers"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and Path(file).resolve().parent != HOME / name:
            error.add_note(f"{file} hides the package {name} that comes with nmt: rename this file")
