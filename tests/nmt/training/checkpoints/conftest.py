"""The folder that checkpoints are written to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.saved import DATA


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory inside a folder with the texts of the checkpoints."""
    for text in DATA.glob("*.*"):
        shutil.copy(text, tmp_path)
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place
