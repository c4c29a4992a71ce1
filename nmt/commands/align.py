"""``mgraph align``: link the words of a parallel text, as fast_align and atools do."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from nmt.commands.common import greet, require_distinct, write
from nmt.runtime.log import logging_as
from nmt.settings import Command, OptionError, Options, option, require_readable, require_writable
from nmt.settings.alignment import AlignmentOptions
from nmt.settings.sections import Logging
from nmt.text.lines import STANDARD_INPUT, open_output

logger = logging.getLogger(__name__)


class PairedTexts(Options):
    """The parallel text."""

    title = "Texts"

    train_sets: tuple[str, ...] = option((), "files: the source and the target", short="t")
    input: str = option("stdin", "or one file of lines 'source ||| target'", short="i")
    vocabs: tuple[str, ...] = option((), "split text by these; else at spaces", short="v")


class PrintedLinks(Options):
    """The links."""

    title = "Links"

    output: str = option("stdout", "file for the links: 0-0 1-2 for each line", short="o")


class AlignOptions(PairedTexts, AlignmentOptions, PrintedLinks, Logging):
    """The options of ``mgraph align``."""


COMMAND = Command(
    "align",
    "link the words of a parallel text, as fast_align and atools do",
    AlignOptions,
    examples=(
        ("mgraph align -t text.de text.en > text.align", "both directions, grow-diag-final-and"),
        ("mgraph align -c intersect < text.de-en", "from lines 'source ||| target'"),
        ("mgraph align -t text.de text.en -v vocab.spm vocab.spm", "links between SentencePiece pieces"),
    ),
)


def run(options: AlignOptions, argv: Sequence[str]) -> None:
    """Write the links of each line."""
    check_texts(options)
    require_distinct({**texts_of(options), "--vocabs": options.vocabs}, options.output)
    require_writable("--output", options.output)
    with logging_as(options):
        greet(COMMAND, argv, options)
        from nmt.alignments.aligner import aligned
        from nmt.alignments.pairs import Pairs
        from nmt.alignments.texts import pharaoh

        began = time.perf_counter()
        links = aligned(Pairs.of(read_pairs(options)), options)
        with open_output(options.output) as output:
            for found in links:
                write(output, pharaoh(found))
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)


def read_pairs(options: PairedTexts) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The words of the source and of the target of each line."""
    from nmt.alignments.texts import joint_rows, split_rows
    from nmt.text.parallel import read_rows

    rows = read_rows(options.train_sets) if options.train_sets else joint_rows(options.input)
    return split_rows(rows, options.vocabs)


def texts_of(options: PairedTexts) -> dict[str, Sequence[str]]:
    """The paths of the texts, under the option that gives them."""
    if options.train_sets:
        return {"--train-sets": options.train_sets}
    return {"--input": [options.input]}


def check_texts(options: PairedTexts) -> None:
    """OptionError for a wrong number of files; OSError for files that cannot be read."""
    if options.train_sets and options.input not in STANDARD_INPUT:
        raise OptionError("--train-sets and --input: give the text by one of them")
    for name, paths in (("train-sets", options.train_sets), ("vocabs", options.vocabs)):
        if len(paths) not in (0, 2):
            raise OptionError(f"--{name}: expected two files, of source and target, got {len(paths)}")
    require_readable("--train-sets", options.train_sets)
    require_readable("--input", [options.input])
    require_readable("--vocabs", options.vocabs)
