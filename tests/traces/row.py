"""A training to be repeated: the model it starts from, and its options."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from tests.matrix.row import merged

COMMON = (
    "--mini-batch 16 --maxi-batch 4 --shuffle none --after-batches 50 --disp-freq 1 --lr-report --seed 1 "
    "--cost-type ce-mean-words --learn-rate 0.005"
)
STREAMS = ("english", "dutch", "german")


class Start(NamedTuple):
    """A model that trainings start from: its name, and the options of its architecture."""

    name: str
    options: str

    @property
    def type(self) -> str:
        """Marian's ``--type``."""
        return value(self.options, "--type")

    @property
    def lacking(self) -> tuple[str, ...]:
        """The endings of parameter names that are left out of the model, so that training must make them."""
        return ("_Wemb",) if "no-embeddings" in self.name else ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of its streams of text, the target last."""
        if self.type.startswith("lm"):
            return STREAMS[-1:]
        return STREAMS if "multi-" in self.type else (STREAMS[0], STREAMS[-1])

    @property
    def vocabs(self) -> list[str]:
        """The file of each stream's vocabulary, in the folder of the text."""
        if "pieces" in self.name:
            return ["joint.spm"] * len(self.streams)
        shared = "--tied-embeddings-all", "--tied-embeddings-src", "--type shared-multi"
        joint = any(words in self.options for words in shared)
        return [f"{'joint' if joint else stream}.yml" for stream in self.streams]


class Row(NamedTuple):
    """A training: its name, the model it starts from, and the options of training."""

    name: str
    start: Start
    options: str

    @property
    def arguments(self) -> list[str]:
        """The command line without the model, relative to the folder of the text."""
        start, options = self.start, self.options
        sets = ["train.tsv"] if "--tsv" in options else [f"train.{stream}" for stream in start.streams]
        given = f"--train-sets {shlex.join(sets)} --vocabs {shlex.join(start.vocabs)}"
        return shlex.split(merged(f"{COMMON} {given} {start.options} {options}"))


def value(options: str, name: str) -> str:
    """The value of an option in a string of options; empty if the string does not have it."""
    words = options.split()
    return words[words.index(name) + 1] if name in words else ""


def entries(lines: str) -> list[tuple[str, str]]:
    """One entry per line: a name, a colon, and its text; a line that begins with "--" continues the entry."""
    found: list[tuple[str, str]] = []
    for line in map(str.strip, lines.strip().splitlines()):
        if line.startswith("--"):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line}")
        else:
            name, _, text = line.partition(":")
            found.append((name, text.strip()))
    return found
