"""``mgraph score``: score given translations, as marian-scorer does."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack

from mgraph import compile_stats
from nmt.commands.common import greet, report_programs, require_distinct, write
from nmt.runtime.log import logging_as
from nmt.settings import SCORE, OptionError, ScoreOptions, require_files, require_readable, require_writable
from nmt.text.lines import open_input, open_output

logger = logging.getLogger(__name__)

COMMAND = SCORE


def run(options: ScoreOptions, argv: Sequence[str]) -> None:
    """Score the lines of ``--train-sets``, as marian-scorer does."""
    require_files("--model", [options.model], options.vocabs)
    if not options.train_sets:
        raise OptionError("--train-sets: the sources and the target are needed, got none")
    require_distinct("--train-sets", options.train_sets, options.output)
    if options.summary:
        others = {"normalize": options.normalize, "word-scores": options.word_scores}
        for name, value in {**others, "alignment": options.alignment}.items():
            if value:
                raise OptionError(f"--{name} cannot go with --summary")
    require_readable("--train-sets", options.train_sets)
    require_writable("--output", options.output)
    with logging_as(options):
        greet(SCORE, argv, options)
        from nmt.search.scorer import Scorer, Total, check_scoring

        check_scoring(options)
        began, programs = time.perf_counter(), compile_stats()
        scorer = Scorer(options)
        total = Total()
        with ExitStack() as stack:
            texts = [stack.enter_context(open_input(path)) for path in options.train_sets]
            output = stack.enter_context(open_output(options.output))
            for result in scorer.scores(*texts):
                total.add(result)
                if not options.summary:
                    write(output, scorer.format(result))
            logger.info(
                "Total log probs %s : Total sentences %d : Total words %d",
                total.summary("ce-sum"),
                total.sentences,
                total.words,
            )
            if options.summary:
                write(output, total.summary(options.summary))
        report_programs(programs)
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)
