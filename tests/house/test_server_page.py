"""The code of ``docs/server.md`` runs and prints what it says; the options that it names exist."""

from __future__ import annotations

import re

from nmt.settings.serving import SERVER, Serving
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "server.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NUMBERS = {"1000": "max_connections", "10,000": "max_waiting_lines", "600 seconds": "message_timeout"}


def test_the_blocks_run_in_order() -> None:
    assert check_blocks(BLOCKS, "server.md") == ["['sechs', 'einhunderteins']", "True"]


def test_options_that_are_named_exist() -> None:
    named = {*re.findall(r"`--([a-z][a-z0-9-]+)", PAGE)}
    assert named <= {*SERVER.options} and len(named) > 7


def test_defaults_are_those_of_the_options() -> None:
    for text, attribute in NUMBERS.items():
        default = getattr(Serving(), attribute)
        name = attribute.replace("_", "-")
        assert re.search(rf"`--{name}`\s+\({text}\)", PAGE) and float(re.sub(r"[^\d]", "", text)) == default
    assert Serving().max_message_bytes == 1 << 20 and "(1 MiB)" in PAGE
