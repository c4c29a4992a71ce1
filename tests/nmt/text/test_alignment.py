"""Alignments out of attention: Marian's text formats."""

from __future__ import annotations

import numpy as np
import pytest

from nmt.settings import OptionError
from nmt.text.output import alignment_field, links, read_alignment

# Marian v1.12.42, decode -b 2 --alignment soft, hard and 0.3 of "six" by a model of number words.
SOFT = "0.999278,0.000721528 0.406381,0.593619"
HARD, ABOVE = "0-0 1-1", "0-0 0-1 1-1"


def attention() -> list[list[float]]:
    return [[float(np.float32(word)) for word in row.split(",")] for row in SOFT.split()]


@pytest.mark.parametrize(
    ("value", "kind"),
    [("", None), ("soft", "soft"), ("hard", 1.0), ("1", 1.0), ("true", 1.0), ("0.3", 0.3), ("2", 2.0)],
)
def test_values_of_the_option(value: str, kind: str | float | None) -> None:
    assert read_alignment(value) == kind


@pytest.mark.parametrize("value", ["0", "-1", "nan", "strong", "false"])
def test_what_marian_aborts_at_is_an_error(value: str) -> None:
    with pytest.raises(OptionError, match=f"--alignment is soft, hard or a number above 0.*'{value}'"):
        read_alignment(value)


def test_fields_as_marian_prints_them() -> None:
    assert alignment_field("soft", attention()) == SOFT
    assert alignment_field(1.0, attention()) == HARD
    assert alignment_field(0.3, attention()) == ABOVE
    assert alignment_field(2.0, attention()) == ""
    assert alignment_field("soft", ()) == alignment_field(1.0, ()) == alignment_field(0.3, ()) == ""


def test_links_are_ordered_by_source_and_ties_go_to_the_first() -> None:
    table = [[0.1, 0.2, 0.7], [0.9, 0.05, 0.05], [0.4, 0.4, 0.2]]
    assert links(table) == [(0, 1), (0, 2), (2, 0)]
    assert links(table, 0.4) == [(0, 1), (2, 0)], "above in float32, not at"
    assert links(table, 0.15) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 2)]
