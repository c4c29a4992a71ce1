"""The code of ``docs/training.md`` runs and prints what it says, and what it calls refused is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmt.settings import TRAIN, OptionError, Support
from nmt.settings.config import parse
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "training.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ENOUGH = ["--train-sets", "a", "b", "--vocabs", "a.yml", "b.yml"]


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_blocks(BLOCKS, "training.md") == ["Model(s2s, 40 parameters, 20,104 numbers)"]


def test_options_that_are_named_exist() -> None:
    named = {*re.findall(r"`--([a-z][a-z0-9-]+)", PAGE)} - {"check"}
    assert named <= {*TRAIN.options}
    assert len(named) > 20


@pytest.mark.parametrize("name", re.findall(r"`--([a-z-]+)`", PAGE.partition("## Not supported")[2]))
def test_what_is_refused_and_what_changes_nothing(name: str) -> None:
    option = TRAIN.options[name]
    text = PAGE.partition("## Not supported")[2]
    refused = text.index(f"--{name}") < text.index("are rejected by name")
    if not refused:
        assert option.support is Support.IGNORED or name == "guided-alignment-cost"
        return
    words = [] if option.kind is bool else ["1"]
    with pytest.raises(OptionError, match=name):
        parse(TRAIN, [*ENOUGH, f"--{name}", *words])
