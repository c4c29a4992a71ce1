"""The README's code runs and prints what it says."""

from __future__ import annotations

import re

import pytest

from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

pytestmark = pytest.mark.optimized

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_blocks_run_in_order(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = check_blocks(BLOCKS, "README.md")
    assert len(BLOCKS) >= 4 and len(expected) >= 4
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")
