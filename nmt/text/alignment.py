"""Word alignments out of attention, in Marian's text formats (``--alignment``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.settings import OptionError

SOFT, HARD = "soft", "hard"


def read_alignment(value: str) -> str | float | None:
    """The option's value: ``soft``, a number above 0 (1 for ``hard`` and ``true``), None for none.

    OptionError for any other.
    """
    if value in ("", SOFT):
        return value or None
    if value in (HARD, "true"):
        return 1.0
    try:
        threshold = float(value)
    except ValueError:
        threshold = -1.0
    if not threshold > 0:
        raise OptionError(f"--alignment is soft, hard or a number above 0, got '{value}'")
    return threshold


def alignment_field(kind: str | float, attention: Sequence[Sequence[float]]) -> str:
    """The alignment as ``mgraph decode`` and ``mgraph score`` print it.

    kind: of ``read_alignment``. attention: ``[target word][source word]``, ``</s>`` included.
    """
    if isinstance(kind, str):
        return soft_alignment(attention)
    return " ".join(f"{source}-{target}" for source, target in links(attention, kind))


def soft_alignment(attention: Sequence[Sequence[float]]) -> str:
    """``0.98,0.02 0.1,0.9``: for each target word its attention to all source words."""
    return " ".join(",".join(f"{weight:.6g}" for weight in row) for row in attention)


def links(attention: Sequence[Sequence[float]], threshold: float = 1.0) -> list[tuple[int, int]]:
    """Pairs of source and target positions, in order.

    With a threshold of 1 each target word is linked to the source word that it attends to most, of equals
    the first; with any other, to all to which its attention, as float32, is above it.
    """
    table = np.asarray(attention, np.float32)
    if not table.size:  # of a line that was not translated
        return []
    if threshold == 1.0:
        pairs = [(int(source), target) for target, source in enumerate(table.argmax(axis=1))]
    else:
        targets, sources = np.nonzero(table > np.float32(threshold))
        pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
    return sorted(pairs)
