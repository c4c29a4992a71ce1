"""The code of ``docs/graphs.md`` runs and prints what it says."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import mgraph
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "graphs.md").read_text()


def test_the_blocks_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    request.addfinalizer(lambda: mgraph.create_loggers(quiet=True).general.setLevel(logging.NOTSET))
    expected = check_blocks(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), "graphs.md")
    assert len(expected) >= 12
    assert "the first line" in (tmp_path / "run.log").read_text()
