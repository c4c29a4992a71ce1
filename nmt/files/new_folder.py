"""``new_folder``: a folder that stays only if the work in it succeeds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(path: Path) -> Iterator[None]:
    """Create a folder for the block, and remove it again if the block fails and the folder was new."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if missing:
            shutil.rmtree(path)
        for folder in missing[1:]:
            folder.rmdir()
        raise
