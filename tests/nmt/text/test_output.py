"""Text formats, pinned on what Marian and C++ streams print."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.text.output import InOrder, score_line, significant, word_scores_field

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


def numbers(text: str) -> list[float]:
    """Float32 values, as they come from a model."""
    return [float(np.float32(word)) for word in text.split()]


@pytest.mark.parametrize(("value", "stream", "fixed", "string"), PRINTED)
def test_numbers_as_cpp_prints_them(value: float, stream: str, fixed: str, string: str) -> None:
    value = float(np.float32(value))
    assert significant(value) == stream
    assert word_scores_field([value]) == f"WordScores= {fixed}"
    assert score_line(value) == string


@pytest.mark.parametrize("line", SCORES)
def test_score_lines_as_marian_prints_them(line: str) -> None:
    score, _, words = line.partition(" ||| WordScores=")
    fields = [word_scores_field(numbers(words))] if words else []
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
        assert taken == list(range(first_missing))  # all that can be, as soon as it can be
