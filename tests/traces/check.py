"""Compares the rows of a folder with our own training."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from mgraph.files.items import read_npz

from . import ours
from .comparison import Agreement, compare_lines, compare_parameters
from .row import Row


def check(row: Row, folder: Path) -> Agreement:
    """Train a row of a folder that ``make`` has made; raises Different if Marian's training differs."""
    folder = folder.resolve()
    own, start = folder / row.name, folder / "starts" / f"{row.start.name}.npz"
    with tempfile.TemporaryDirectory() as work:
        lines, params = ours.train(row.arguments, folder / "text", start, Path(work))
    theirs = (own / "log.txt").read_text(encoding="utf-8").splitlines()
    costs = compare_lines(theirs, lines)
    return Agreement(costs, *compare_parameters(read_npz(start), np.load(own / "changes.npy"), params))
