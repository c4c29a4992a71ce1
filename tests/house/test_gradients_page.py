"""The code of ``docs/gradients.md`` runs and prints what it shows; what it lists exists."""

from __future__ import annotations

import re

from mgraph.gradcheck.report import TOLERANCES
from nmt.commands.gradcheck import COMMAND
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT
from tests.mgraph.gradcheck.public_mistakes import ORDINARY

PAGE = (ROOT / "docs" / "gradients.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_run_in_order_and_print_what_the_page_shows() -> None:
    assert len(BLOCKS) >= 6 and len(SHOWN) >= 5
    assert check_blocks(BLOCKS, "gradients.md", SHOWN) == ["True", "True", "ok", "True"]


def test_the_witnesses_are_those_of_the_checker() -> None:
    table = PAGE.partition("## What each witness sees")[2].partition("\n\nThe first two")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    allowed = {name: float(row[3]) for row in rows for name in re.findall(r"`([\w-]+)`", row[1])}
    assert allowed == {name: limit for name, limit in TOLERANCES.items() if name in allowed}
    assert set(TOLERANCES) - set(allowed) == {"float64", "float32"}


def test_each_rewritten_mistake_has_a_row() -> None:
    threads = {operator.thread for operator in ORDINARY}
    assert all(f"]({thread}) |" in PAGE for thread in threads) and len(threads) == len(ORDINARY) == 12


def test_options_that_are_named_exist() -> None:
    named = set(re.findall(r"`--([a-z][a-z0-9-]+)", PAGE))
    assert named and named <= set(COMMAND.options)
