"""The code of ``docs/layers.md`` runs and prints what it says, and its table of cells is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import layers
from layers.cells import CELLS
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "layers.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = check_blocks(BLOCKS, "layers.md")
    assert len(BLOCKS) >= 7 and len(expected) >= 8
    assert (tmp_path / "classifier.npz").exists()


def test_all_activations_are_listed() -> None:
    (row,) = re.findall(r"^\| `\(\"activation\",.*\| `activation=\"(\w+)\"`, or (.*) \|$", PAGE, re.MULTILINE)
    assert {row[0], *re.findall(r"`(\w+)`", row[1])} == set(layers.ACTIVATIONS) - {""}


def test_the_table_of_cells() -> None:
    rows = re.findall(r"^\| `(\S+)` \| `(\w+)` \| (\d) \| (yes|no) \|", PAGE, re.MULTILINE)
    assert {name: (kind, int(states), bare) for name, kind, states, bare in rows} == {
        name: (kind.__name__, kind.states, "yes" if kind.transition else "no") for name, kind in CELLS.items()
    }
    for _, kind, *_ in rows:
        assert issubclass(getattr(layers, kind), layers.Cell)
