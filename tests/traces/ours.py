"""Trains a row with our trainer and Marian's command line."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mgraph.files.items import read_npz
from nmt.settings import TRAIN
from nmt.settings.config import parse
from nmt.training.trainer import Trainer

from .trace import kept


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _said() -> Iterator[list[str]]:
    """The lines that the trainer logs inside the block."""
    logger, handler = logging.getLogger("nmt"), _Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def train(
    arguments: Sequence[str], texts: Path, start: Path, work: Path, more: Sequence[str] = ()
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Train with a command line; return the lines of its updates, and the saved parameters.

    arguments: all except the model. texts: the folder of the text. start: the model to start from. work: the
    folder for the model. more: further arguments.
    """
    model = work / "model.npz"
    given = ["--model", str(model), "--pretrained-model", str(start), "--marian-exact"]
    before = os.getcwd()
    os.chdir(texts)
    try:
        with _said() as lines:
            Trainer(parse(TRAIN, [*arguments, *given, *more])).train()
    finally:
        os.chdir(before)
    return kept(lines), read_npz(model)
