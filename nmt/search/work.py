"""``SearchWork``: the work of lane rows and encoders, and how much of it was for sentences."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class SearchWork:
    """Counts of a search; those of several searches can be added."""

    steps: int = 0
    """Steps of rows: each step of a lane counts once for each of its rows."""
    busy: int = 0
    """How many of ``steps`` had a sentence."""
    positions: int = 0
    """Positions of encoded sources, padding included."""
    words: int = 0
    """How many of ``positions`` were words."""

    def __add__(self, other: SearchWork) -> SearchWork:
        return SearchWork(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def idle(self) -> float:
        """The share of the rows' steps without a sentence."""
        return 1 - self.busy / self.steps if self.steps else 0.0

    @property
    def padding(self) -> float:
        """The share of the encoded positions that are padding."""
        return 1 - self.words / self.positions if self.positions else 0.0

    def __str__(self) -> str:
        """``1,310 steps of rows, 4.2% idle; 960 encoded positions, 12.5% padding``."""
        return (
            f"{self.steps:,} steps of rows, {self.idle:.1%} idle; "
            f"{self.positions:,} encoded positions, {self.padding:.1%} padding"
        )
