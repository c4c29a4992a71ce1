"""The code of ``docs/decoding.md`` runs and prints what it says; the options that it names exist."""

from __future__ import annotations

import re

from nmt.settings import DECODE, SCORE
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "decoding.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_run_in_order() -> None:
    expected = ["[(3, 'vier'), (4, 'fünf')]", "['einhunderteins']", "sechs True", "eins zwei"]
    assert check_blocks(BLOCKS, "decoding.md") == expected


def test_options_that_are_named_exist() -> None:
    named = {*re.findall(r"`--([a-z][a-z0-9-]+)", PAGE)}
    assert named <= {*DECODE.options, *SCORE.options}
    assert {"shares", "share"} <= named and len(named) > 10
