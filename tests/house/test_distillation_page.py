"""The code of ``docs/distillation.md`` runs and prints what it says; the options that it names exist."""

from __future__ import annotations

import re

from nmt.commands import convert
from nmt.commands.distill import COMMAND
from nmt.settings import DECODE
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "distillation.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_run_in_order() -> None:
    assert check_blocks(BLOCKS, "distillation.md") == ["the house is big"]


def test_options_that_are_named_exist() -> None:
    named = {*re.findall(r"`--([a-z][a-z0-9-]+)", PAGE)}
    assert named <= {*COMMAND.options, *DECODE.options, *convert.COMMAND.options} and len(named) > 10
