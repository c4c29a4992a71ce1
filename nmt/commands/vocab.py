"""``mgraph vocab``: count the words of texts, as marian-vocab does, or train a SentencePiece model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nmt.commands.common import Operands, greet
from nmt.runtime.log import logging_as
from nmt.settings import Command, OptionError, Options, option, require_readable, require_writable
from nmt.settings.option import again, options_of
from nmt.settings.sections import Logging
from nmt.settings.training import Files
from nmt.text.lines import STANDARD_INPUT, STANDARD_OUTPUT, open_input, open_output
from nmt.text.vocabs.creation import check_new_vocab, create_vocab, word_vocab


class NewVocab(Options):
    """The vocabulary to create."""

    title = "Vocabulary"

    max_size: int = option(0, "the number of ids, for the most frequent words; 0: all", short="m", least=0)
    output: str = option("stdout", "file to create: .yml (words) or .spm (pieces)", short="o")


class Pieces(Options):
    """Training of SentencePiece."""

    title = "Pieces"

    sentencepiece_options: str = option("", "options for SentencePiece: '--byte_fallback=true'")
    sentencepiece_max_lines: int = again(
        Files, "sentencepiece_max_lines", help="learn from a random sample of N lines; 0: all"
    )
    seed: int = option(1, "seed of the sample")


class VocabLog(Logging):
    """The log."""

    title = "Log"


class VocabOptions(NewVocab, Pieces, VocabLog, Operands):
    """The options of ``mgraph vocab``."""


COMMAND = Command(
    "vocab",
    "a vocabulary of the texts in files or on standard input",
    VocabOptions,
    operands="FILE",
    examples=(
        ("mgraph vocab < text.en > vocab.yml", "as marian-vocab"),
        (
            "mgraph vocab text.en text.de -o joint.yml --max-size 32000",
            "the most frequent words of two files",
        ),
        ("mgraph vocab text.en text.de -o joint.spm --max-size 8000", "pieces learnt by SentencePiece"),
    ),
)


def run(options: VocabOptions, argv: Sequence[str]) -> None:
    """Write the vocabulary of the given files, or of standard input."""
    texts = options.operands or STANDARD_INPUT[:1]
    require_readable("FILE", texts)
    if not options.output.endswith(".spm"):
        _refuse_pieces(options)
    if options.output not in STANDARD_OUTPUT:
        require_writable("--output", options.output)
        check_new_vocab(options.output, options.sentencepiece_options)
    with logging_as(options):
        greet(COMMAND, argv, options)
        lines = _lines(texts)
        if options.output not in STANDARD_OUTPUT:
            create_vocab(
                options.output,
                lines,
                options.max_size,
                options=options.sentencepiece_options,
                max_lines=options.sentencepiece_max_lines,
                seed=options.seed,
            )
            return
        with open_output(options.output) as output:
            output.write(word_vocab(lines, options.max_size))
            output.flush()


def _refuse_pieces(options: VocabOptions) -> None:
    for declared in options_of(Pieces).values():
        if getattr(options, declared.attribute) != declared.default:
            raise OptionError(
                f"--{declared.name} is for vocabularies that end in .spm, got --output {options.output}"
            )


def _lines(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        with open_input(path) as stream:
            yield from stream
