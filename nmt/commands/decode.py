"""``mgraph decode``: translate a file, as marian-decoder does."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from mgraph import compile_stats
from nmt.commands.common import greet, report_programs, require_distinct, write
from nmt.commands.folders import with_folder
from nmt.commands.sharing import Results, SharedWork, Work, check_sharing
from nmt.runtime.log import logging_as
from nmt.settings import DECODE, DecodeOptions, require_files, require_readable, require_writable
from nmt.settings.config import read_command_line
from nmt.settings.sections import BatchOptions
from nmt.text.lines import is_file, open_input, open_output

logger = logging.getLogger(__name__)

COMMAND = replace(DECODE, complete=with_folder)


def run(options: DecodeOptions, argv: Sequence[str]) -> None:
    """Translate the files of ``--input``, as marian-decoder does."""
    with logging_as(options), ExitStack() as files:
        _check(options)
        greet(DECODE, argv, options)
        from nmt.search.translator import check_decoding

        check_decoding(options)
        began, programs = time.perf_counter(), compile_stats()
        options = _reading_ahead(options, argv)
        if options.shares:
            SharedWork(DECODE, options, options.input).do(lambda: _translating(options))
        else:
            work = _translating(options)
            inputs = [files.enter_context(open_input(path)) for path in options.input]
            output = files.enter_context(open_output(options.output))
            for text, _ in work(inputs):
                write(output, text)
        report_programs(programs)
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)


def _check(options: DecodeOptions) -> None:
    """OptionError for conflicts; OSError for files that cannot be read or written."""
    require_files("--models", options.models, options.vocabs)
    inputs = {"--input": options.input, "--models": options.models, "--vocabs": options.vocabs}
    more = {"--pieces": options.pieces, "--shortlist": options.shortlist[:1]}
    require_distinct({**inputs, **more}, options.output)
    require_readable("--input", options.input)
    require_writable("--output", options.output)
    check_sharing("--input", options.input, options)


def _reading_ahead(options: DecodeOptions, argv: Sequence[str]) -> DecodeOptions:
    """The options, changed so that files are read as far ahead as other commands read them.

    Marian's default is a line at a time, and ``decoder.yml`` may say so, too, but lines that are searched
    together take a fraction of the time and get the same translations. Unchanged for pipes, which are
    answered line by line, and if the command line says how far to read.
    """
    said = read_command_line(DECODE, argv)[0]
    if options.mini_batch * options.maxi_batch > 1 or {"mini-batch", "maxi-batch"} & said.keys():
        return options
    ahead = replace(options, mini_batch=BatchOptions.mini_batch, maxi_batch=BatchOptions.maxi_batch)
    if all(map(is_file, options.input)):
        lines = ahead.mini_batch * ahead.maxi_batch
        logger.info("[search] Reading files %d lines ahead; --mini-batch 1 translates line by line", lines)
        return ahead
    batching = f"--mini-batch {ahead.mini_batch} --maxi-batch {ahead.maxi_batch}"
    logger.info("[search] Answering each line as it comes; %s takes less time for many lines", batching)
    return options


def _translating(options: DecodeOptions) -> Work:
    """Load the models, and return the work of translating with them."""
    from nmt.search.translator import Translator

    translator = Translator(options)
    translator.require_inputs(len(options.input))

    def work(texts: Sequence[Iterator[bytes]], *, first: int = 0, done: int = 0) -> Results:
        for translation in translator.translations(*texts, first=first, done=done):
            if not options.quiet_translation:
                best = translator.format_best(translation)
                logger.info("Best translation %d : %s", translation.line, best)
            yield translator.format(translation), {}

    return work
