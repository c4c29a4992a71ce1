"""The training text: sentences of the matrix's words, of two lengths, some with an empty side."""

from __future__ import annotations

import random
from pathlib import Path

from ..matrix.corpus import Sentence, alignment, sentence

# Sentences of two lengths make batches of few shapes, and a program is compiled for each shape.
LINES, SHORT, LONG = 200, 6, 9
EMPTY = {20: Sentence("", "", ""), 90: Sentence("the dog", "", "de hond"), 130: Sentence("", "das Haus", "")}
# The columns of the tab-separated file.
COLUMNS = ("english", "german", "alignment", "sentence-weight")


def lines() -> tuple[list[Sentence], list[str]]:
    """The sentences and their alignments; every fifth is long. Most English ones end with a full stop, so the
    source and the target are not equally long."""
    generator = random.Random(5)
    texts, links = [], []
    for number in range(LINES):
        found = sentence(generator)
        while len(found.german.split()) != (LONG if number % 5 == 4 else SHORT):
            found = sentence(generator)
        links.append("" if number in EMPTY else alignment(found))
        stop = "" if number % 3 == 2 else " ."
        texts.append(EMPTY.get(number, found._replace(english=found.english + stop)))
    return texts, links


def write(folder: Path) -> None:
    """Write train.STREAM for the languages, the alignment and the weights, and the tab-separated file."""
    texts, links = lines()
    generator = random.Random(6)
    streams = dict(zip(Sentence._fields, map(list, zip(*texts, strict=True)), strict=True))
    targets = [text.german.split() for text in texts]
    streams["alignment"] = links
    streams["sentence-weight"] = [f"{generator.uniform(0.2, 2):.2f}" for _ in texts]
    streams["word-weight"] = [
        " ".join(f"{generator.uniform(0.2, 2):.1f}" for _ in words) for words in targets
    ]
    streams["choice"] = [" ".join("01"[len(word) % 3 > 0] for word in words) for words in targets]
    streams["tsv"] = list(map("\t".join, zip(*(streams[name] for name in COLUMNS), strict=True)))
    for name, column in streams.items():
        text = "".join(f"{line}\n" for line in column)
        (folder / f"train.{name}").write_text(text, encoding="utf-8")
