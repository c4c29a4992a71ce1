"""Text formats, pinned to what Marian and C++ streams print."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.settings import OptionError
from nmt.text.output import (
    InOrder,
    alignment_field,
    links,
    read_alignment,
    score_line,
    significant,
    with_feature,
    word_scores_field,
)
from tests.helpers.marian_lines import float32s

# float32 values as `std::ostream << x`, as `std::fixed` with precision 5, and by std::to_string
# (g++ 12, x86-64): what Marian prints in `F0=`, in `WordScores=` and as a sentence score.
PRINTED = [
    (-71.3033, "-71.3033", "-71.30330", "-71.303299"),
    (-0.00123456, "-0.00123456", "-0.00123", "-0.001235"),
    (-1.5e-05, "-1.5e-05", "-0.00001", "-0.000015"),
    (0.0, "0", "0.00000", "0.000000"),
    (-0.0, "-0", "-0.00000", "-0.000000"),
    (-100.0, "-100", "-100.00000", "-100.000000"),
    (-1234567.0, "-1.23457e+06", "-1234567.00000", "-1234567.000000"),
    (-999999.5, "-1e+06", "-999999.50000", "-999999.500000"),
    (-9.999999, "-10", "-10.00000", "-9.999999"),
    (1e-4, "0.0001", "0.00010", "0.000100"),
    (1e-5, "1e-05", "0.00001", "0.000010"),
    (-0.1, "-0.1", "-0.10000", "-0.100000"),
    (1e-45, "1.4013e-45", "0.00000", "0.000000"),
    (math.inf, "inf", "inf", "inf"),
    (-math.inf, "-inf", "-inf", "-inf"),
    (math.nan, "nan", "nan", "nan"),
]
# score --word-scores of a pair, and of an empty pair.
SCORES = [
    "-21.095356 ||| WordScores= -1.43886 -0.64285 -2.39680 -5.84794 -8.22604 -2.52577 -0.01710",
    "-3.513320 ||| WordScores= -3.51332",
    "-33.211517",
]


@pytest.mark.parametrize(("value", "stream", "fixed", "string"), PRINTED)
def test_numbers_as_cpp_prints_them(value: float, stream: str, fixed: str, string: str) -> None:
    value = float(np.float32(value))
    assert significant(value) == stream
    assert word_scores_field([value]) == f"WordScores= {fixed}"
    assert score_line(value) == string


@pytest.mark.parametrize("line", SCORES)
def test_score_lines_as_marian_prints_them(line: str) -> None:
    score, _, words = line.partition(" ||| WordScores=")
    fields = [word_scores_field(float32s(words))] if words else []
    assert score_line(float(score), fields) == line


@given(st.permutations(range(20)))
def test_order_is_restored(order: list[int]) -> None:
    collector: InOrder[int] = InOrder()
    taken: list[int] = []
    for count, number in enumerate(order, 1):
        collector.add(number, number)
        taken += collector.take()
        present = set(order[:count])
        first_missing = next((n for n in range(20) if n not in present), 20)
        assert taken == list(range(first_missing))  # all that can be taken, as soon as possible


# Marian v1.12.42, decode -b 2 --alignment soft, hard and 0.3 of "six" by a model of number words.
SOFT = "0.999278,0.000721528 0.406381,0.593619"
HARD, ABOVE = "0-0 1-1", "0-0 0-1 1-1"


def attention() -> list[list[float]]:
    return [float32s(row.replace(",", " ")) for row in SOFT.split()]


@pytest.mark.parametrize(
    ("value", "kind"),
    [("", None), ("soft", "soft"), ("hard", 1.0), ("1", 1.0), ("true", 1.0), ("0.3", 0.3), ("2", 2.0)],
)
def test_values_of_the_option(value: str, kind: str | float | None) -> None:
    assert read_alignment(value) == kind


@pytest.mark.parametrize("value", ["0", "-1", "nan", "strong", "false"])
def test_what_marian_aborts_at_is_an_error(value: str) -> None:
    with pytest.raises(OptionError, match=f"--alignment must be soft, hard or a number above 0.*'{value}'"):
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


def test_a_feature_of_an_entry_that_need_not_be_utf_8() -> None:
    entry = b"0 ||| a \xff ||| F0= -1 ||| -2"
    assert with_feature(entry, "Fwd= -3") == "0 ||| a \udcff ||| F0= -1 Fwd= -3 ||| -2"
    assert (
        with_feature(entry, "Fwd= -3", ["0-0", "WordScores= -1"])
        == "0 ||| a \udcff ||| 0-0 ||| WordScores= -1 ||| F0= -1 Fwd= -3 ||| -2"
    )
    assert with_feature(b"0 |||||| a ||| F0= -1 ||| -2", "F= 0") == "0 ||| a ||| F0= -1 F= 0 ||| -2"
