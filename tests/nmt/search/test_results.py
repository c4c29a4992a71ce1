"""Translations as they are printed, pinned to Marian's output, and their attention as it is drawn."""

from __future__ import annotations

import copy
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from nmt.search.embedder import SentenceVector
from nmt.search.results import Attention, AttentionError, Hypothesis, Printing, Translation
from nmt.search.scorer import Score
from nmt.search.scoring import Scored
from nmt.search.states import States
from nmt.search.trellis import SLACK, Ranking, Trellis, best_hypotheses
from tests.helpers.marian_lines import float32s

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
# Marian v1.12.42, decode -b 2 --alignment soft, hard and 0.3 of "six" by a model of number words.
SOFT = "0.999278,0.000721528 0.406381,0.593619"


def attention() -> list[list[float]]:
    return [[float(np.float32(word)) for word in row.split(",")] for row in SOFT.split()]


def reprinted(entry: str) -> str:
    """An n-best entry, parsed into a hypothesis and printed again."""
    match = re.fullmatch(
        r"(\d+) \|\|\| (.*?)(?: \|\|\| WordScores=([^|]*))? \|\|\| (F0=.*) \|\|\| (\S+)", entry
    )
    assert match, entry
    line, text, words, features, score = match.groups()
    scorers = tuple(float32s(" ".join(re.findall(r"F\d+= (\S+)", features))))
    hypothesis = Hypothesis((), tuple(float32s(words or "")), scorers[0], float32s(score)[0], scorers)
    translation = Translation(int(line), (text,), (hypothesis,))
    return Printing(n_best=True, word_scores=words is not None).lines(translation)


@pytest.mark.parametrize("entry", N_BEST)
def test_n_best_entries_as_marian_prints_them(entry: str) -> None:
    assert reprinted(entry) == entry


def test_features_of_an_ensemble() -> None:
    hypothesis = Hypothesis((2, 0), (-1.0, -0.5), -1.5, -0.75, (-1.25, -1.75))
    translation = Translation(7, ("a",), (hypothesis,))
    assert Printing(n_best=True).lines(translation) == "7 ||| a ||| F0= -1.25 F1= -1.75 ||| -0.75"


def test_best_line() -> None:
    hypothesis = Hypothesis((2, 0), (-1.0, -0.5), -1.5, -0.75, (-1.5,))
    translation = Translation(0, ("a b",), (hypothesis,))
    assert Printing().best(translation) == Printing().lines(translation) == "a b"
    assert Printing(word_scores=True).best(translation) == "a b ||| WordScores= -1.00000 -0.50000"


def test_whole_n_best_lists_of_marian(fixtures: Path) -> None:
    lists = sorted(fixtures.glob("marian/*/beam4.nbest"))
    assert lists
    for path in lists:
        for entry in path.read_text("utf-8").splitlines():
            assert reprinted(entry) == entry


def test_the_alignment_stands_before_the_word_scores() -> None:
    hypothesis = Hypothesis((5, 0), (-0.5, -0.25), -0.75, -0.75, (-0.75,), True, tuple(attention()))
    printing = Printing(n_best=True, word_scores=True, alignment=1.0)
    translation = Translation(3, ("sechs",), (hypothesis,))
    scores = "WordScores= -0.50000 -0.25000"
    assert printing.best(translation) == f"sechs ||| 0-0 1-1 ||| {scores}"
    assert printing.lines(translation) == f"3 ||| sechs ||| 0-0 1-1 ||| {scores} ||| F0= -0.75 ||| -0.75"


def test_the_best_of_a_list_and_lines_that_are_left_out() -> None:
    best, other = (Hypothesis((2, 0), (-1.0, -0.5), -1.5, score, (-1.5,)) for score in (-0.75, -1.25))
    translation = Translation(0, ("a", "b"), (best, other))
    assert (translation.text, translation.score, translation.scores) == ("a", -0.75, (-0.75, -1.25))
    assert Printing().lines(translation) == "a"
    assert Printing(alignment=1.0).best(Translation(0, ("",), (Hypothesis((), (), 0, 0, ()),))) == " ||| "


class Axes:
    """Stands in for the axes that a heatmap is drawn into."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple] = {}
        self.xaxis = self.figure = self

    def __getattr__(self, name: str):
        return lambda *arguments, **_: self.calls.setdefault(name, arguments)


def test_results_with_arrays_can_be_compared() -> None:
    weights = np.eye(2, dtype=np.float32)
    one, same, other = (
        Translation(0, ("a",), (), attentions=(Attention(each, ("b", "</s>"), ("a", "</s>")),))
        for each in (weights, weights.copy(), 1 - weights)
    )
    assert one == same and hash(one) == hash(same) and one != other and other in [one, other]
    plain, scored = Score(0, -1.5, (-1.5,)), Score(0, -1.5, (-1.5,), attention=weights)
    assert scored == copy.deepcopy(scored) != plain == Score(0, -1.5, (-1.5,)) and scored != one
    assert Score(1, math.nan, ()) == Score(1, math.nan, ())
    assert len({scored, copy.deepcopy(scored), plain}) == 2


@pytest.mark.parametrize("kind", [States, SentenceVector, Scored])
def test_tuples_with_arrays_can_be_compared(kind: type) -> None:
    filling = np.full(len(kind._fields), 2)
    one = kind(np.array([1, math.nan]), np.eye(2), *filling[2:])
    same, other = copy.deepcopy(one), one._replace(**{kind._fields[1]: np.ones(2)})
    assert one == same == tuple(one) and (one != same) is False and hash(one) == hash(same)
    assert one != other and tuple(other) != one and one != 1 and other in [one, other]


def test_the_bound_is_little_above_the_score_of_the_longest_extension() -> None:
    ranking = Ranking(np.float32(0.6), np.float32(0))
    paths, limits = np.float32([-1.5, -0.25, -300]), np.int32([7, 3, 90])
    bound, longest = ranking.bound(paths, limits), ranking.scores(paths, limits)
    assert (bound > longest).all()
    np.testing.assert_allclose(bound, longest, rtol=2 * SLACK)


def test_a_plot_shows_weights_and_words() -> None:
    weights = np.array(attention(), np.float32)
    found = Attention(weights, ("▁six", "</s>"), ("▁sechs", "</s>"))
    hypothesis = Hypothesis((), (), 0.0, 0.0, ())
    axes = Translation(0, ("sechs",), (hypothesis,), attentions=(found,)).plot(Axes(), title="six")
    assert axes.calls["imshow"][0] is weights
    assert axes.calls["set_xticks"] == (range(2), ("▁six", "</s>"))
    assert axes.calls["set_yticks"] == (range(2), ("▁sechs", "</s>"))
    assert axes.calls["set_title"] == ("six",)


def test_a_plot_is_a_picture(tmp_path) -> None:
    from matplotlib import pyplot

    axes = Attention(np.array(attention(), np.float32), ("six", "</s>"), ("sechs", "</s>")).plot()
    axes.figure.savefig(tmp_path / "attention.png")
    bar = axes.figure.axes[1]
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("Attention", "source", "target")
    assert bar.get_ylabel() == "weight of a source word" and bar.get_ylim() == (0, 1)
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    pyplot.close(axes.figure)


def test_what_cannot_be_plotted_says_why(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AttentionError, match=r"matplotlib: pip install 'mgraph-jax\[plot\]'"):
        Attention(np.ones((1, 1), np.float32), ("a",), ("b",)).plot()
    with pytest.raises(AttentionError, match="line 3 has no attention: it was not requested"):
        Translation(2, ("",), ()).plot()


@pytest.mark.filterwarnings("error")
def test_a_score_beyond_float32_causes_no_warning() -> None:
    words, paths = np.array([[1], [0]]), np.array([[-1], [-2]], np.float32)
    trellis = Trellis(words, np.zeros((2, 1), np.int32), paths, paths[..., None])
    for normalize, score in ((200.0, -0.0), (-200.0, -math.inf)):
        ranking = Ranking(np.float32(normalize), np.float32(0))
        [found] = best_hypotheses(trellis, 5, 3, ranking, 0, 1)
        assert found.score == score
