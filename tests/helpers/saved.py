"""Checkpoints that Marian made, loaded, saved again and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.settings import TRAIN, TrainOptions
from nmt.settings.config import parse
from nmt.training.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from nmt.training.update import LearnerState
from tests.helpers import places

DATA = places.DATA / "checkpoint"


def loaded(source: Path, **changed: Any) -> tuple[TrainOptions, Checkpoint]:
    """The options that a checkpoint was made with, some of them changed, and the checkpoint."""
    values = replace(parse(TRAIN, ["-c", str(source / "model.npz.yml")]), **changed)
    found = load_checkpoint(source / "model.npz", values)
    assert found is not None
    return values, found


def save(values: TrainOptions, found: Checkpoint, *, final: bool = True) -> None:
    save_checkpoint(values.model, values, found.options, found.learner, found.state, final=final)


def contents(folder: Path) -> dict[str, bytes]:
    """The contents of a folder, by name."""
    return {path.name: path.read_bytes() if path.is_file() else b"folder" for path in folder.iterdir()}


def equal(first: LearnerState, second: LearnerState) -> bool:
    """Whether two states are the same to the last bit."""
    trees = [
        [s.params, *(s.moments[name] for name in sorted(s.moments)), s.average or {}, s.errors or {}]
        for s in (first, second)
    ]
    flat = [[(name, np.asarray(t[name]).tobytes()) for t in tree for name in sorted(t)] for tree in trees]
    numbers = [
        (s.steps, s.denominators, s.cost_scale, s.average_words, sorted(s.moments)) for s in (first, second)
    ]
    return flat[0] == flat[1] and numbers[0] == numbers[1]
