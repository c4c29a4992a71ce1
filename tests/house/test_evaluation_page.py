"""The code of ``docs/evaluation.md`` runs and prints what it says; the options that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmt.settings.metrics import EMBED, EVALUATE
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "evaluation.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")  # the only sources that the blocks may need
    monkeypatch.chdir(tmp_path)
    assert len(check_blocks(BLOCKS, "evaluation.md")) == 7


def test_options_that_are_named_exist() -> None:
    commands = "\n".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL))
    named = {*re.findall(r"`--([a-z][a-z0-9-]+)", PAGE), *re.findall(r" --([a-z][a-z0-9-]+)", commands)}
    assert named - {"task"} <= {*EVALUATE.options, *EMBED.options}
    assert {"average", "compute-similarity", "like", "metrics"} <= named
