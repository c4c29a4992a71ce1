"""What is stored of a training: the lines of its updates without times, and how far the parameters moved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

STAMP = re.compile(r"^\[\d[^]]*\] ")
TIMES = re.compile(r" : Time \S+ : \S+ words/s")
KEPT = ("Ep. ", "Seen ", "Starting ", "[valid] Ep. ")


def kept(lines: Iterable[str]) -> list[str]:
    """The lines of a training's log that are compared, without what depends on the clock."""
    bare = (TIMES.sub("", STAMP.sub("", line)) for line in lines)
    return [line for line in bare if line.startswith(KEPT)]


def changes(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], kind: type = np.float16
) -> np.ndarray:
    """How far all parameters moved: one vector, in the order of their names.

    Parameters that did not exist ``before`` moved from zero. The error of float16 is a twentieth of a percent
    of a change; parameters are compared to a fifth of a percent.
    """
    names = sorted(name for name in after if not name.startswith("special:"))
    return np.concatenate([(after[name] - before.get(name, 0)).ravel() for name in names]).astype(kind)
