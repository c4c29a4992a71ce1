"""``mgraph vocab``: count the words of texts, as marian-vocab does, or learn pieces of words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from nmt.commands.common import asks_for_help, greet
from nmt.runtime.log import logging_as
from nmt.settings import Command, Option, require_readable, require_writable
from nmt.settings.config import parse
from nmt.settings.shared import LOGGING
from nmt.text.lines import STANDARD_INPUT, STANDARD_OUTPUT, open_input, open_output
from nmt.text.vocabs.creation import check_new_vocab, create_vocab, word_vocab

COMMAND = Command(
    "vocab",
    "a vocabulary of the texts in files or on standard input",
    {
        "Vocabulary": (
            Option(
                "max-size", int, 0, "ids in all, of the most frequent words; 0 for all", short="m", least=0
            ),
            Option("output", str, "stdout", "file to make: .yml (words) or .spm (pieces)", short="o"),
        ),
        "Pieces": (
            Option("sentencepiece-options", str, "", "options for SentencePiece: '--byte_fallback=true'"),
            Option(
                "sentencepiece-max-lines",
                int,
                2_000_000,
                "learn from a random sample of so many lines; 0 for all",
                least=0,
            ),
            Option("seed", int, 1, "of the sample"),
        ),
        "Log": LOGGING,
    },
    operands="FILE",
    examples=(
        ("mgraph vocab < text.en > vocab.yml", "as marian-vocab"),
        (
            "mgraph vocab text.en text.de -o joint.yml --max-size 32000",
            "of two files, the most frequent words",
        ),
        ("mgraph vocab text.en text.de -o joint.spm --max-size 8000", "pieces, learnt by SentencePiece"),
    ),
)


def run(argv: Sequence[str]) -> int | None:
    """Write the vocabulary of the files that are named, or of standard input."""
    if asks_for_help(COMMAND, argv):
        return None
    values = parse(COMMAND, argv)
    texts = values["operands"] or STANDARD_INPUT[:1]
    require_readable("FILE", texts)
    if values["output"] not in STANDARD_OUTPUT:
        require_writable("--output", values["output"])
        check_new_vocab(values["output"], values["sentencepiece_options"])
    with logging_as(values):
        greet(COMMAND, argv, values)
        lines = _lines(texts)
        if values["output"] not in STANDARD_OUTPUT:
            create_vocab(
                values["output"],
                lines,
                values["max_size"],
                options=values["sentencepiece_options"],
                max_lines=values["sentencepiece_max_lines"],
                seed=values["seed"],
            )
            return None
        with open_output(values["output"]) as output:
            output.write(word_vocab(lines, values["max_size"]))
            output.flush()
    return None


def _lines(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        with open_input(os.fspath(path)) as stream:
            yield from stream
