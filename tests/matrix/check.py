"""Compares the rows of a folder with what we compute with their models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.marian_lines import Different

from . import marian, ours
from .comparison import Agreement, compare
from .row import Row
from .rows import REFUSED, ROWS, Ensemble


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a row: whether everything agrees with Marian, and how closely, or where it does not."""

    equal: bool
    note: str

    def __str__(self) -> str:
        return f"{'=' if self.equal else '≠'} {self.note}"


def outcome(row: Row | Ensemble, folder: Path) -> Outcome:
    """Compare a row of a folder that ``make`` has made."""
    refused = folder / row.name / "refused.txt"
    if refused.exists():
        said = refused.read_text().strip()
        wanted = REFUSED.get(row.name, "" if row not in ROWS else "\n")
        return Outcome(said.startswith(wanted), f"Marian refuses: {said}")
    try:
        found = check(row, folder)
    except Different as error:
        return Outcome(False, str(error))
    except Exception as error:
        return Outcome(False, f"{type(error).__name__}: {error}")
    gaps = f"scores {found.scores:.0e}, attention {found.attention:.0e}"
    return Outcome(True, f"{gaps}, {found.ties} ties" if found.ties else gaps)


def check(row: Row | Ensemble, folder: Path) -> Agreement:
    """Decode and score the lines with a row's models; raise Different if Marian's output differs."""
    own, texts, found = folder / row.name, folder / "corpus", Agreement()
    rows = [row] if isinstance(row, Row) else row.members
    first = max(rows, key=lambda row: row.sources)
    given: dict[str, Any] = {
        "models": [str(folder / member.name / "model.npz") for member in rows],
        "vocabs": marian.decoder_vocabs(first, texts),
        "texts": [_read(texts / f"test.{name}") for name in marian.read_streams(first)],
        "weights": [] if isinstance(row, Row) else row.weights,
        "marian_exact": any(normalises_keys(member) for member in rows),
    }
    decoded, scored = (marian.informative(own, names) for names in (marian.DECODED, marian.SCORED))
    if not decoded and not scored:
        raise FileNotFoundError(f"{own}: there is no output of Marian's")
    for name in decoded:
        soft = _read(own / "soft.nbest") if name == "hard.nbest" else []
        found.add(compare(name, _read(own / name), ours.decode(name, **given), soft))
    tests = [_read(texts / f"test.{name}") for name in marian.streams(first)]
    for name in scored:
        lines = ours.score(name, str(own / "model.npz"), marian.vocabs(first, texts), tests)
        found.add(compare(name, _read(own / name), lines))
    return found


def normalises_keys(row: Row) -> bool:
    """Whether Marian's decoder uses a row's model differently from its training (``--marian-exact``)."""
    words = row.options.split()
    pre = words[words.index("--transformer-preprocess") + 1] if "--transformer-preprocess" in words else ""
    return row.type != "transformer-new" and any(op in pre for op in "nr")


def _read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]
