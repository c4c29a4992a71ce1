"""``mgraph average``: the mean of checkpoints, smoothed, and of the best ones by a metric."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mgraph import ArgumentError, ModelFileError
from mgraph.files.items import MODEL_YML, model_yml, read_npz, with_model_yml, write_npz
from nmt import load_model
from nmt.cli import main
from nmt.files.averaging import average_models, best_checkpoints
from tests.helpers.places import SHIPPED

LOG = """\
[2026-11-24 10:00:00] [valid] Ep. 1 : Up. 8000 : cross-entropy : 31.5 : new best
[2026-11-24 10:00:00] [valid] Ep. 1 : Up. 8000 : chrf : 40.1 : new best
[2026-11-24 10:01:00] [valid] Ep. 1 : Up. 9000 : cross-entropy : 30.25 : new best
[2026-11-24 10:01:00] [valid] Ep. 1 : Up. 9000 : chrf : 39.9 : stalled 1 times (last best: 40.1)
[2026-11-24 10:02:00] [valid] Ep. 2.5 : Up. 10000 : cross-entropy : 31.75 : stalled 1 times (last best: 30.25)
[2026-11-24 10:02:00] [valid] Ep. 2.5 : Up. 10000 : chrf : nan : stalled 2 times (last best: 40.1)
"""


def checkpoint(folder: Path, update: int, values: list[float], text: str = "type: s2s\ndim-emb: 4") -> Path:
    path = folder / f"model.iter{update}.npz"
    write_npz(path, {"W": np.array([values], np.float32), MODEL_YML: with_model_yml(text)})
    return path


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Models in the order in which a shell lists them."""
    made = {10000: [3.0, 9.0], 8000: [0.0, 1.0], 9000: [1.0, 3.0]}
    return [checkpoint(tmp_path, update, values) for update, values in made.items()]


def mean_of(models: list[Path], **settings: float) -> list[float]:
    target = models[0].parent / "mean.npz"
    average_models(models, target, **settings)
    items = read_npz(target)
    assert model_yml(items) == "type: s2s\ndim-emb: 4" and items["W"].dtype == np.float32
    return items["W"][0].tolist()


def test_the_mean(models: list[Path]) -> None:
    assert mean_of(models) == np.float32([4 / 3, 13 / 3]).tolist()
    assert mean_of(models[:1]) == [3.0, 9.0]


def test_later_checkpoints_count_more_when_smoothed(models: list[Path]) -> None:
    # 0 -> 0.5 * 1 -> 0.5 * 0.5 + 0.5 * 3, in the order of their updates
    assert mean_of(models, smoothing=0.5) == [1.75, 5.5]
    assert mean_of(models, smoothing=1.0) == [3.0, 9.0]


def test_sums_lose_no_digits(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((20, 50)).astype(np.float32)
    models = [checkpoint(tmp_path, i, row.tolist()) for i, row in enumerate(values)]
    np.testing.assert_array_max_ulp(np.float32(mean_of(models)), np.float32(values.mean(0, np.float64)), 1)


@pytest.mark.parametrize(
    ("metric", "count", "best"),
    [("cross-entropy", 1, [9000]), ("cross-entropy", 2, [9000, 8000]), ("chrf", 2, [8000, 9000])],
)
def test_the_best(models: list[Path], tmp_path: Path, metric: str, count: int, best: list[int]) -> None:
    log = tmp_path / "valid.log"
    log.write_text(LOG)
    found = best_checkpoints(models, log, metric, count, lower_is_better=metric != "chrf")
    assert [path.name for path in found] == [f"model.iter{update}.npz" for update in best]
    with pytest.raises(ArgumentError, match="has values of chrf for 2 of the 3 models, expected 3"):
        best_checkpoints(models, log, "chrf", 3, lower_is_better=False)
    older = [*models, tmp_path / "model.iter7000.npz"]  # the log says nothing of this one
    assert best_checkpoints(older, log, metric, count, lower_is_better=metric != "chrf") == found
    with pytest.raises(ArgumentError, match=r"model\.npz: expected a checkpoint, whose name ends"):
        best_checkpoints([tmp_path / "model.npz"], log, metric, 1, lower_is_better=True)


def test_wrong_arguments_are_refused(models: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="expected one or more models to average, got none"):
        average_models([], tmp_path / "mean.npz")
    for smoothing in (-0.1, 1.1):
        with pytest.raises(ArgumentError, match=f"expected a smoothing from 0 to 1, got {smoothing}"):
            average_models(models, tmp_path / "mean.npz", smoothing=smoothing)
    assert not (tmp_path / "mean.npz").exists()


def test_models_that_are_not_alike_are_refused(models: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    write_npz(other, {"U": np.zeros((1, 2), np.float32)})
    with pytest.raises(ModelFileError, match=r"other\.npz: lacks 'W' and has 'U', unlike the models before"):
        average_models([*models, other], tmp_path / "mean.npz")
    longer = checkpoint(tmp_path, 11000, [1.0, 2.0, 3.0])
    with pytest.raises(ModelFileError, match=r"'W' has the shape \[1, 3\], in the models before it \[1, 2\]"):
        average_models([*models, longer], tmp_path / "mean.npz")
    deeper = checkpoint(tmp_path, 12000, [1.0, 2.0], "type: s2s\ndim-emb: 8")
    with pytest.raises(ModelFileError, match=r"dim-emb is '8', in the models before it '4'"):
        average_models([*models, deeper], tmp_path / "mean.npz")
    assert not (tmp_path / "mean.npz").exists()


def test_the_command_makes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = SHIPPED / "model.npz", tmp_path / "mean.npz"
    assert main(["average", "-m", str(source), str(source), "-o", str(target), "--quiet"]) == 0
    mean, own = load_model(target), load_model(source)
    assert all(np.array_equal(value, own.params[name]) for name, value in mean.params.items())
    assert main(["average", "-o", str(target)]) == 2
    assert main(["average", "-m", str(source), "-o", str(target), "--best", "1"]) == 2
    assert main(["average", "-m", str(target), "-o", str(target)]) == 2
    assert "--best needs --valid-log" in capsys.readouterr().err


def test_the_command_takes_the_best(models: list[Path], tmp_path: Path) -> None:
    (tmp_path / "valid.log").write_text(LOG)
    choice = ["--best", "2", "--metric", "chrf", "--valid-log", str(tmp_path / "valid.log")]
    target = tmp_path / "mean.bin"
    assert main(["average", "-m", *map(str, models), "-o", str(target), *choice, "--quiet"]) == 0
    back = tmp_path / "back.npz"
    assert main(["convert", "-f", str(target), "-t", str(back), "--quiet"]) == 0
    assert read_npz(back)["W"].tolist() == [[0.5, 2.0]]
