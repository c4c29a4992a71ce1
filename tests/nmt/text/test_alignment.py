"""Alignments out of attention: Marian's text formats, and the drawing of a heatmap."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from nmt.search.results import Attention, AttentionError, Hypothesis, Translation
from nmt.settings import OptionError
from nmt.text.alignment import alignment_field, links, read_alignment
from nmt.text.output import best_line, n_best_line

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


def test_the_alignment_stands_before_the_word_scores() -> None:
    hypothesis = Hypothesis((5, 0), (-0.5, -0.25), -0.75, -0.75, (-0.75,), True, tuple(attention()))
    options = {"alignment": 1.0, "word_scores": True}
    scores = "WordScores= -0.50000 -0.25000"
    assert best_line("sechs", hypothesis, **options) == f"sechs ||| 0-0 1-1 ||| {scores}"
    entry = n_best_line(3, "sechs", hypothesis, **options)
    assert entry == f"3 ||| sechs ||| 0-0 1-1 ||| {scores} ||| F0= -0.75 ||| -0.75"


class Axes:
    """What a heatmap is drawn into."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple] = {}
        self.xaxis = self

    def __getattr__(self, name: str):
        return lambda *arguments, **_: self.calls.setdefault(name, arguments)


def test_a_plot_shows_weights_and_words() -> None:
    weights = np.array(attention(), np.float32)
    found = Attention(weights, ("▁six", "</s>"), ("▁sechs", "</s>"))
    hypothesis = Hypothesis((), (), 0.0, 0.0, ())
    axes = Translation(0, ("sechs",), (hypothesis,), attentions=(found,)).plot(Axes())
    assert axes.calls["imshow"][0] is weights
    assert axes.calls["set_xticks"] == (range(2), ("▁six", "</s>"))
    assert axes.calls["set_yticks"] == (range(2), ("▁sechs", "</s>"))


def test_a_plot_is_a_picture(tmp_path) -> None:
    from matplotlib import pyplot

    axes = Attention(np.array(attention(), np.float32), ("six", "</s>"), ("sechs", "</s>")).plot()
    axes.figure.savefig(tmp_path / "attention.png")
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    pyplot.close(axes.figure)


def test_what_cannot_be_plotted_says_why(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AttentionError, match=r"matplotlib: pip install 'mgraph\[plot\]'"):
        Attention(np.ones((1, 1), np.float32), ("a",), ("b",)).plot()
    with pytest.raises(AttentionError, match="line 3 has no attention: it was not asked for"):
        Translation(2, ("",), ()).plot()
