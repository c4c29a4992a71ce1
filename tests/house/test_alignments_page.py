"""The code of ``docs/alignments.md`` runs and prints what it says; the options that it names exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from nmt.settings import DECODE, TRAIN
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "alignments.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = ("align", "shortlist")


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_blocks(BLOCKS, "alignments.md")[0] == "[(0, 0), (1, 1), (2, 2), (3, 3)]"


def test_options_that_are_named_exist() -> None:
    commands = [importlib.import_module(f"nmt.commands.{name}").COMMAND for name in COMMANDS]
    known = {*TRAIN.options, *DECODE.options, *(option for command in commands for option in command.options)}
    named = {*re.findall(r"`--([a-z][a-z0-9-]+)", PAGE)}
    assert named <= known and len(named) > 8
