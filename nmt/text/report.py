"""What became of an epoch's sentences."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from nmt.text.shapes import Shape, area


@dataclass
class EpochReport:
    """Counts of one epoch; they are complete when the epoch has ended.

    read: rows of the text. sentences: those that were trained on. left_out: the others, by reason.
    remarks: what was odd about sentences that were trained on, by kind.
    batches: how many there were. fresh: of these, ones that fitted no shape that had been chosen before.
    words: in all streams, ``</s>`` included. positions: in the batches as they are, each as long as its
        longest sentence, as in Marian. padded: the same in the shapes that the batches are padded to.
    shapes: how many batches had each; a program is compiled for each of them.
    """

    read: int = 0
    sentences: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    fresh: int = 0
    words: int = 0
    positions: int = 0
    padded: int = 0
    shapes: Counter[Shape] = field(default_factory=Counter)

    @property
    def waste(self) -> float:
        """The share of positions that is there because batches are padded to few shapes."""
        return 1 - self.positions / self.padded if self.padded else 0.0

    @property
    def padding(self) -> float:
        """The share of positions that hold no word, for whichever reason."""
        return 1 - self.words / self.padded if self.padded else 0.0

    def add(self, size: Shape, words: int, shape: Shape, fresh: bool) -> None:
        """Count a batch that has so many rows and such lengths (``size``), and is padded to ``shape``."""
        self.batches += 1
        self.fresh += fresh
        self.sentences += size[0]
        self.words += words
        self.positions += area(size)
        self.padded += area(shape)
        self.shapes[shape] += 1

    def lines(self) -> list[str]:
        """The report for the log."""
        report = [
            f"{self.sentences:,} sentences in {self.batches:,} batches of {len(self.shapes)} shapes"
            f"{f' ({self.fresh} batches fitted none of those chosen before)' if self.fresh else ''}; "
            f"padding takes {self.padding:.1%} of the positions, {self.waste:.1%} for the shapes"
        ]
        if self.left_out:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common())
            report.append(f"{self.left_out.total():,} of {self.read:,} lines left out: {reasons}")
        report += [f"{remark}: {count:,}" for remark, count in self.remarks.most_common()]
        return report
