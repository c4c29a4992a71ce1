"""Shared code of ``evaluate`` and ``embed``: checks, files and the log around a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from mgraph import compile_stats
from nmt.commands.common import greet, report_programs, require_distinct
from nmt.runtime.log import logging_as
from nmt.settings import Command, OptionError, require_files, require_readable, require_writable
from nmt.settings.metrics import EmbedOptions, EvaluateOptions
from nmt.text.lines import open_input

logger = logging.getLogger(__name__)


@contextmanager
def reading(
    command: Command[Any], options: EvaluateOptions | EmbedOptions, argv: Sequence[str]
) -> Iterator[list[BinaryIO]]:
    """The opened texts of a run. OptionError or OSError, before anything is loaded, unless the texts and the
    output can be used. The command opens the output only after loading, so that no error empties it."""
    by_model = options.vocabs or options.model != type(options).model
    if by_model or not getattr(options, "metrics", ()):
        require_files("--model", [options.model], options.vocabs, of="each text")
    if not options.train_sets:
        raise OptionError("--train-sets: at least one text is needed, got none; --tsv reads fields of stdin")
    inputs = {"--train-sets": options.train_sets, "--model": [options.model], "--vocabs": options.vocabs}
    require_distinct(inputs, options.output)
    require_readable("--train-sets", options.train_sets)
    require_writable("--output", options.output)
    with logging_as(options), ExitStack() as files:
        greet(command, argv, options)
        began, programs = time.perf_counter(), compile_stats()
        yield [files.enter_context(open_input(path)) for path in options.train_sets]
        report_programs(programs)
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)
