"""The code of ``docs/gradients-models.md`` runs and prints what it says; the options that it names exist."""

from __future__ import annotations

import re

from nmt.commands.gradcheck import COMMAND
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "gradients-models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_run_in_order() -> None:
    assert len(check_blocks(BLOCKS, "gradients-models.md")) == 3


def test_options_that_are_named_exist() -> None:
    named = {*re.findall(r"--([a-z][a-z0-9-]+)", PAGE)}
    assert named <= {*COMMAND.options} and {"layers", "html", "float64"} <= named
