"""``mgraph shortlist``: count a lexical shortlist from the links of a parallel text, as extract_lex does."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nmt.commands.align import PairedTexts, check_texts, read_pairs, texts_of
from nmt.commands.common import greet, require_distinct
from nmt.runtime.log import logging_as
from nmt.settings import Command, OptionError, Options, option, require_readable, require_writable
from nmt.settings.alignment import AlignmentOptions, ShortlistLimits
from nmt.settings.sections import Logging
from nmt.text.lines import STANDARD_OUTPUT, is_stream, open_input, open_output, read_lines

if TYPE_CHECKING:
    from nmt.alignments.lexicon import LinkCounts
    from nmt.alignments.symmetrization import Link

logger = logging.getLogger(__name__)


class LinkedTexts(PairedTexts):
    """The parallel text and its links."""

    title = "Texts"

    alignments: str = option("", "links of the text, as mgraph align prints them; else it is aligned first")


class LexicalTables(Options):
    """The files to write."""

    title = "Tables"

    output: str = option("", "text: target source probability; stdout if it is the only table", short="o")
    output_reverse: str = option("", "text of the other direction: source target probability")
    dump_shortlist: str = option("", "Marian's binary shortlist; needs --vocabs")


class ShortlistOptions(LinkedTexts, LexicalTables, ShortlistLimits, AlignmentOptions, Logging):
    """The options of ``mgraph shortlist``."""


COMMAND = Command(
    "shortlist",
    "count a lexical shortlist from the links of a parallel text, as extract_lex does",
    ShortlistOptions,
    examples=(
        ("mgraph shortlist -t text.en text.de --alignments text.align > lex.s2t", "of words"),
        (
            "mgraph shortlist -t text.en text.de -v vocab.spm vocab.spm --dump-shortlist lex.s2t.bin",
            "of pieces, aligned first, in the binary format",
        ),
        ("mgraph decode -m model.npz -v vocab.spm vocab.spm --shortlist lex.s2t.bin false", "decode with it"),
    ),
)


def run(options: ShortlistOptions, argv: Sequence[str]) -> None:
    """Write the tables that the options ask for."""
    _check(options)
    with logging_as(options):
        greet(COMMAND, argv, options)
        counts = _counted(options)
        text = options.output or ("" if options.dump_shortlist or options.output_reverse else "stdout")
        best, threshold = options.best, options.threshold
        if text:
            _write(text, counts.table(best=best, threshold=threshold))
        if options.output_reverse:
            reverse = counts.table(best=best, threshold=threshold, turned=True)
            _write(options.output_reverse, reverse)
        if options.dump_shortlist:
            from nmt.alignments.lexicon import dump_shortlist
            from nmt.text.vocabs.loading import load_vocab

            source, target = (load_vocab(path) for path in options.vocabs)
            limits = {"first": options.first, "best": best}
            dump_shortlist(options.dump_shortlist, counts, source, target, **limits, threshold=threshold)


def _check(options: ShortlistOptions) -> None:
    """OptionError for conflicts; OSError for files that cannot be read or written."""
    check_texts(options)
    if options.dump_shortlist and not options.vocabs:
        raise OptionError("--dump-shortlist needs --vocabs, whose ids are in the binary file")
    require_readable("--alignments", [options.alignments])
    texts = texts_of(options)
    if not options.alignments and any(is_stream(path) for paths in texts.values() for path in paths):
        raise OptionError(
            "standard input and pipes can be read only once; aligning needs files, or --alignments"
        )
    inputs = {**texts, "--alignments": [options.alignments], "--vocabs": options.vocabs}
    written: dict[str, str] = {}
    for name in ("output", "output-reverse", "dump-shortlist"):
        path = getattr(options, name.replace("-", "_"))
        require_distinct(inputs, path, f"--{name}")
        require_writable(f"--{name}", path)
        if path:
            place = "stdout" if path in STANDARD_OUTPUT else os.path.realpath(path)
            other = written.setdefault(place, name)
            if other != name:
                raise OptionError(f"--{name}: {path} is also written by --{other}")


def _counted(options: ShortlistOptions) -> LinkCounts:
    """The links of the text, counted."""
    from nmt.alignments.lexicon import LinkCounts
    from nmt.alignments.texts import AlignmentError

    counts = LinkCounts()
    links = _given(options.alignments) if options.alignments else _found(options)
    rows = read_pairs(options)
    number = 0
    for number, (source, target) in enumerate(rows, 1):
        found = next(links, None)
        if found is None:
            raise AlignmentError(f"{options.alignments}: ends after {number - 1} lines, the text goes on")
        try:
            counts.add(source, target, found)
        except AlignmentError as error:
            raise AlignmentError(f"{options.alignments}: line {number}: {error}") from None
    if next(links, None) is not None:
        raise AlignmentError(f"{options.alignments}: goes on after {number} lines, the text ends")
    return counts


def _given(path: str) -> Iterator[list[Link]]:
    from nmt.alignments.texts import read_pharaoh

    with open_input(path) as stream:
        for number, line in enumerate(read_lines(stream), 1):
            yield read_pharaoh(line, f"{path}: line {number}")


def _found(options: ShortlistOptions) -> Iterator[list[Link]]:
    from nmt.alignments.aligner import aligned
    from nmt.alignments.pairs import Pairs

    return aligned(Pairs.of(read_pairs(options)), options)


def _write(path: str, lines: Iterable[bytes]) -> None:
    with open_output(path) as output:
        output.writelines(line + b"\n" for line in lines)
        output.flush()
