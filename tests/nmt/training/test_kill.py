"""Training that was killed resumes as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials import kill


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "kills"), [(kill.MARIANS, 3), (kill.OPTAX, 2)])
@pytest.mark.sampled("--learn-rate 0.01-3")
def test_killed_training_saves_the_same_files(tmp_path: Path, optimizer: str, kills: int) -> None:
    assert kill.trial(tmp_path, kills, seed=4, optimizer=optimizer) == 1
    assert (tmp_path / "killed-0" / "log").read_text().count("Training started") == 1 + kills


def test_a_difference_of_files_is_found() -> None:
    files = {"model.npz": b"1", "model.npz.yml": b"2"}
    kill.compare(files, dict(files))
    for other in ({**files, "model.npz": b"3"}, {"model.npz": b"1"}, {**files, "more": b""}):
        with pytest.raises(kill.Different):
            kill.compare(files, other)
