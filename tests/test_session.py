"""What a run of training says of itself."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from nmt import Trainer

TEXT = Path(__file__).parent / "data" / "traces" / "text"
CHECKPOINT = Path(__file__).parent / "data" / "checkpoint" / "lm-adam"


def log_of(caplog: pytest.LogCaptureFixture, **options: Any) -> list[str]:
    """The lines that a training writes."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "nmt"):
        Trainer(
            type="lm",
            dim_emb=4,
            dim_rnn=4,
            cpu_threads=1,
            train_sets=[TEXT / "train.german"],
            vocabs=[TEXT / "german.yml"],
            mini_batch=60,
            max_length=6,
            overwrite=True,
            **options,
        ).train()
    return [record.getMessage() for record in caplog.records]


def test_what_was_left_out_is_said_even_if_no_epoch_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = log_of(caplog, model=tmp_path / "m.npz", after_batches=1)
    assert any(
        line.startswith("[data] so far, some read ahead: ")
        and line.endswith(" with more words than --max-length")
        for line in lines
    )


def test_another_seed_does_not_count_when_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"model": tmp_path / "m.npz", "after_batches": 1}
    log_of(caplog, seed=3, **options)
    said = "[training] Going on with --seed 3, as before; got 4"
    assert said in log_of(caplog, seed=4, **options)
    assert not any("--seed" in line for line in log_of(caplog, **options))


def test_whose_number_of_ids_vocabularies_are_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the model which training goes on with, or of an option."""
    owners = []

    class Asked(Exception):
        pass

    def asked(values: Any, *, owner: str) -> None:
        owners.append(owner)
        raise Asked

    monkeypatch.setattr("nmt.training.session.load_or_create_vocabs", asked)
    model = tmp_path / "m.npz"
    for _ in range(2):
        with pytest.raises(Asked):
            options = {"type": "lm", "train_sets": [TEXT / "train.german"], "vocabs": [TEXT / "german.yml"]}
            Trainer(model=model, cpu_threads=1, **options).train()
        shutil.copy(CHECKPOINT / "model.npz", model)
    assert owners == ["--dim-vocabs", str(model)]
