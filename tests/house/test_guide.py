"""The code of the guide's pages that have no test of their own runs and prints what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGES = {
    "start": 4,
    "graph": 7,
    "own-operators": 9,
    "pytorch": 4,
    "inside": 6,
    "gradients-witnesses": 3,
    "gradients-mutants": 0,
    "precision": 0,
    "huggingface": 1,
}
"""The least number of printed lines that each page promises."""


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL)
    assert blocks and len(check_blocks(blocks, f"{page}.md")) >= PAGES[page]


def test_every_page_with_code_is_run() -> None:
    """In this file, or by a test that names the page."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for path in (ROOT / "docs").glob("*.md"):
        if "```python" in path.read_text():
            assert path.stem in PAGES or f'"{path.name}"' in tests, path.name
