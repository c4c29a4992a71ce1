"""Makes all rows with Marian: the models, and its output for the test lines."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import marian
from .row import Row
from .rows import Ensemble

AT_ONCE = 2
SMALL_LINES = (2, 2)


def make(folder: Path, wanted: Sequence[Row | Ensemble], *, small: bool = False) -> None:
    """Make these rows, each in its own folder; ensembles need the rows of their models.

    small: use few lines, and keep only what a comparison needs.
    """
    texts = folder / "corpus"
    marian.make_corpus(texts, *(SMALL_LINES if small else ()))

    def one(row: Row | Ensemble) -> None:
        if isinstance(row, Row):
            marian.make_row(row, texts, folder / row.name)
        else:
            marian.make_ensemble(row, texts, folder / row.name)
        print(row.name, flush=True)

    # Ensembles come last: their models must exist.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, [row for row in wanted if isinstance(row, Row)]))
        list(pool.map(one, [row for row in wanted if isinstance(row, Ensemble)]))
    if small:
        tidy(folder, wanted)


def tidy(folder: Path, rows: Sequence[Row | Ensemble]) -> None:
    """Remove what a comparison does not need."""
    for own in (folder / row.name for row in rows):
        kept = {"model.npz", *marian.informative(own, {**marian.DECODED, **marian.SCORED})}
        for path in own.iterdir():
            if path.name not in kept:
                path.unlink()
    for path in (folder / "corpus").iterdir():
        if path.name.startswith(("train", "log")):
            path.unlink()
