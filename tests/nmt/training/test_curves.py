"""Curves of a training, from the file that ``--log-json`` writes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import nmt
from mgraph import ArgumentError
from nmt.settings.training import Extras
from nmt.training.curves import CurvesError
from nmt.training.reports import Reports


def written(path: Path) -> Path:
    """Two runs of a training; the second resumes from update 20 of the first."""
    for updates in ((10, 20, 30), (30, 40)):
        with Reports(Extras(log_json=str(path)), None, 0) as reports:
            for update in updates:
                bad = float("nan") if update == 40 else update / len(updates)
                reports.add("train", update, {"cost": bad, "learn_rate": 1e-3, "epoch": 1.0})
            reports.add("valid", updates[-1], {"bleu": 30.0 + len(updates)})
    return path


def test_the_curves_are_those_of_the_file(tmp_path: Path) -> None:
    curves = nmt.Curves.read(written(tmp_path / "train.json"))
    assert curves.names == ("cost", "learn_rate", "epoch", "bleu")
    cost, *_, bleu = curves.curves
    assert cost.updates.tolist() == [10, 20, 30, 40]
    np.testing.assert_array_equal(cost.values, [10 / 3, 20 / 3, 15.0, np.nan])
    assert (bleu.kind, bleu.updates.tolist(), bleu.values.tolist()) == ("valid", [40], [32.0])


def test_each_run_replaces_the_figures_from_its_first_update_on(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    for cost, updates in ((3.0, (10, 20, 30)), (2.0, (20, 30))):
        with Reports(Extras(log_json=str(path)), None, 0) as reports:
            for update in updates:
                reports.add("train", update, {"cost": cost})
                reports.add("valid", update, {"bleu": cost})
    for curve in nmt.Curves.read(path).curves:
        assert (curve.updates.tolist(), curve.values.tolist()) == ([10, 20, 30], [3.0, 2.0, 2.0])


@pytest.mark.parametrize("dark", [False, True])
def test_a_plot_has_titles_and_labels(tmp_path: Path, dark: bool) -> None:
    from matplotlib import pyplot

    curves = nmt.Curves.read(written(tmp_path / "train.json"))
    figure = curves.plot(title="Numbers", dark=dark)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["cost (--cost-type)", "learning rate", "BLEU"]
    assert figure.get_suptitle() == "Numbers" and figure.axes[-1].get_xlabel() == "updates"
    assert [axes.get_title("left") for axes in figure.axes] == ["training", "training", "validation"]
    assert figure.axes[0].lines[0].get_xdata().tolist() == [10, 20, 30, 40]
    assert (sum(figure.get_facecolor()[:3]) < 1) == dark
    (axes,) = curves.plot(["epoch"]).axes
    assert axes.lines[0].get_marker() == ""
    pyplot.close("all")


def test_curves_can_be_compared(tmp_path: Path) -> None:
    path = written(tmp_path / "train.json")
    assert nmt.Curves.read(path) == nmt.Curves.read(path)


def test_what_is_no_log_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "train.json")
    with pytest.raises(CurvesError, match="no figure 'chrf'; there are cost, learn_rate, epoch, bleu"):
        nmt.Curves.read(path).plot(["chrf"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CurvesError, match=r"matplotlib: pip install 'mgraph-jax\[plot\]'"):
        nmt.Curves.read(path).plot()
    for bad in ("[1]", "{}", '{"kind": "train", "update": "1"}', "no JSON"):
        path.write_text('{"kind": "train", "update": 1, "cost": 2.0}\n' + bad + "\n")
        with pytest.raises(CurvesError, match="line 2: expected a line of --log-json, got "):
            nmt.Curves.read(path)
    path.write_bytes(b"PK\xde\xad")
    with pytest.raises(CurvesError, match="line 1: expected a line of --log-json, got "):
        nmt.Curves.read(path)
    path.write_text("")
    with pytest.raises(CurvesError, match="has no figures"):
        nmt.Curves.read(path)


def test_what_cannot_be_read_or_drawn_says_so(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    with pytest.raises(ArgumentError, match="expected the path of a file, got a NoneType"):
        nmt.Curves.read(None)
    path.write_text('{"kind": "train", "update": 18446744073709551616, "cost": 2.0}\n')
    with pytest.raises(CurvesError, match="line 1: expected a line of --log-json, got "):
        nmt.Curves.read(path)
    path.write_text('{"kind": "train", "update": 1, "epoch": 2.0}\n')
    curves = nmt.Curves.read(path)
    with pytest.raises(CurvesError, match="no cost, learning rate or metric .* to draw; there are epoch$"):
        curves.plot()
    with pytest.raises(CurvesError, match="names: expected a list of names of figures, got 'epoch'"):
        curves.plot("epoch")


def test_a_single_point_is_marked(tmp_path: Path) -> None:
    from matplotlib import pyplot

    path = tmp_path / "train.json"
    path.write_text('{"kind": "train", "update": 1, "cost": 2.0}\n')
    (axes,) = nmt.Curves.read(path).plot().axes
    assert axes.lines[0].get_marker() == "o"
    pyplot.close("all")
