"""Text formats, pinned on what Marian and C++ streams print."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.search.results import Hypothesis
from nmt.text.output import InOrder, best_line, n_best_line, score_line, significant, word_scores_field

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

# Marian v1.12.42, models of two kinds: decode -b 4 --normalize 0.6 --n-best --word-scores,
# decode -b 4 --n-best --word-scores of an empty line, decode -b 2 --n-best --word-penalty 0.3
# -n 0.6 of an empty line.
N_BEST = [
    "1 ||| this is not not . ||| WordScores= -2.77700 -0.43539 -0.83029 -2.55698 -3.22288 "
    "-0.02433 ||| F0= -9.84686 ||| -3.36053",
    "3 ||| agenda ||| WordScores= -3.00789 -0.05761 ||| F0= -3.0655 ||| -3.0655",
    "6 ||| question of this kind ||| WordScores= -4.48491 -1.42048 -3.11833 -3.79188 -0.60437 "
    "||| F0= -13.42 ||| -13.42",
    "1 |||  ||| WordScores= 0.00000 ||| F0= -3.51332 ||| 0",
    "11 |||  ||| F0= -4.14296 ||| -0.3",
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


def reprinted(entry: str) -> str:
    """An n-best entry taken apart into a hypothesis and printed again."""
    match = re.fullmatch(
        r"(\d+) \|\|\| (.*?)(?: \|\|\| WordScores=([^|]*))? \|\|\| (F0=.*) \|\|\| (\S+)", entry
    )
    assert match, entry
    line, text, words, features, score = match.groups()
    scorers = tuple(numbers(" ".join(re.findall(r"F\d+= (\S+)", features))))
    hypothesis = Hypothesis((), tuple(numbers(words or "")), scorers[0], numbers(score)[0], scorers)
    return n_best_line(int(line), text, hypothesis, word_scores=words is not None)


@pytest.mark.parametrize(("value", "stream", "fixed", "string"), PRINTED)
def test_numbers_as_cpp_prints_them(value: float, stream: str, fixed: str, string: str) -> None:
    value = float(np.float32(value))
    assert significant(value) == stream
    assert word_scores_field([value]) == f"WordScores= {fixed}"
    assert score_line(value) == string


@pytest.mark.parametrize("entry", N_BEST)
def test_n_best_entries_as_marian_prints_them(entry: str) -> None:
    assert reprinted(entry) == entry


def test_features_of_an_ensemble() -> None:
    hypothesis = Hypothesis((2, 0), (-1.0, -0.5), -1.5, -0.75, (-1.25, -1.75))
    assert n_best_line(7, "a", hypothesis) == "7 ||| a ||| F0= -1.25 F1= -1.75 ||| -0.75"


def test_best_line() -> None:
    hypothesis = Hypothesis((2, 0), (-1.0, -0.5), -1.5, -0.75, (-1.5,))
    assert best_line("a b", hypothesis) == "a b"
    assert best_line("a b", hypothesis, word_scores=True) == ("a b ||| WordScores= -1.00000 -0.50000")


@pytest.mark.parametrize("line", SCORES)
def test_score_lines_as_marian_prints_them(line: str) -> None:
    score, _, words = line.partition(" ||| WordScores=")
    fields = [word_scores_field(numbers(words))] if words else []
    assert score_line(float(score), fields) == line


def test_whole_n_best_lists_of_marian(fixtures: Path) -> None:
    lists = sorted(fixtures.glob("marian/*/beam4.nbest"))
    assert lists
    for path in lists:
        for entry in path.read_text("utf-8").splitlines():
            assert reprinted(entry) == entry


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
