"""Plots: matplotlib, where it is installed, with a light and a dark look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mgraph import MGraphError

_SHARED = {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}
_LIGHT = {"axes.edgecolor": "#6b7380", "grid.color": "#d9dde3"}
_DARK = {
    **{f"{part}.facecolor": "#16191f" for part in ("figure", "axes", "savefig")},
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), "#e6e9ee"),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), "#98a1ae"),
    "grid.color": "#343a45",
}
COLORS = ("#1f6feb", "#d9480f", "#2a9d8f", "#9b5de5", "#bc6c25", "#b5179e")
"""Colours of lines, legible on both backgrounds."""


@contextmanager
def plotting(dark: bool, error: type[MGraphError]) -> Iterator[Any]:
    """``matplotlib.pyplot`` with the light or the dark look for plots made in the block.

    ``error`` is raised if matplotlib (the extra ``plot``) is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise error("a plot needs matplotlib: pip install 'mgraph-jax[plot]'") from None
    look: dict[Any, Any] = {**_SHARED, **(_DARK if dark else _LIGHT)}
    with pyplot.rc_context(look):
        yield pyplot
