"""A row of the matrix, and tables of them."""

from __future__ import annotations

import shlex
from typing import NamedTuple

DEEP = "--enc-depth 2 --dec-depth 2"
NEMATUS = "--enc-cell gru-nematus --dec-cell gru-nematus"
PRENORM = "--transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n"
AVERAGE = "--transformer-decoder-autoreg average-attention"
SSRU = "--transformer-decoder-autoreg rnn --dec-cell ssru"


class Row(NamedTuple):
    """A model: its name, and the options that Marian trains it with."""

    name: str
    options: str

    @property
    def type(self) -> str:
        """Marian's ``--type``."""
        words = self.options.split()
        return words[words.index("--type") + 1]

    @property
    def sources(self) -> int:
        """The number of source streams."""
        return 0 if self.type.startswith("lm") else 2 if "multi" in self.type else 1

    @property
    def joint(self) -> bool:
        """Whether all streams have one vocabulary, as tied or shared embeddings need."""
        return "tied-embeddings-" in self.options or "shared" in self.type


def merged(options: str) -> str:
    """The options, of which later ones replace earlier ones: Marian refuses an option that is given twice."""
    values: dict[str, list[str]] = {}
    for word in shlex.split(options):
        if word.startswith("--"):
            name, values[word] = word, []
        else:
            values[name].append(word)
    return " ".join(shlex.join([name, *words]) for name, words in values.items())


def table(common: str, lines: str) -> tuple[Row, ...]:
    """One row per line: a name, a colon, the options in addition to the common ones.

    A line that begins with an option continues the row before it.
    """
    rows: list[list[str]] = []
    for line in map(str.strip, lines.strip().splitlines()):
        if line.startswith("--"):
            rows[-1][1] += f" {line}"
        else:
            rows.append(line.split(":", 1))
    return tuple(Row(name, merged(f"{common} {options}")) for name, options in rows)
