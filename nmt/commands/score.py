"""``mgraph score``: score given translations, as marian-scorer does."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack

from mgraph import compile_stats
from nmt.commands.common import asks_for_help, greet, report_programs, require_distinct, started, write
from nmt.runtime.log import logging_as
from nmt.settings import SCORE, OptionError, require_files, require_readable, require_writable
from nmt.settings.config import parse
from nmt.text.lines import open_input, open_output

logger = logging.getLogger(__name__)

COMMAND = SCORE


def run(argv: Sequence[str]) -> int | None:
    """Score the lines of ``--train-sets``, as marian-scorer does."""
    if asks_for_help(SCORE, argv):
        return None
    values = parse(SCORE, argv)
    require_files(values)
    if not values["train_sets"]:
        raise OptionError("--train-sets: the sources and the target are needed, got none")
    require_distinct("--train-sets", values["train_sets"], values["output"])
    if values["summary"]:
        for name in ("normalize", "word_scores", "alignment"):
            if values[name]:
                raise OptionError(f"--{name.replace('_', '-')} cannot go with --summary")
    require_readable("--train-sets", values["train_sets"])
    require_writable("--output", values["output"])
    with logging_as(values):
        greet(SCORE, argv, values)
        from nmt.search.scorer import Scorer, Total, check_scoring

        check_scoring(values)
        began, programs = time.perf_counter(), compile_stats()
        scorer = Scorer(**started(SCORE, values))
        total = Total()
        with ExitStack() as stack:
            texts = [stack.enter_context(open_input(path)) for path in values["train_sets"]]
            output = stack.enter_context(open_output(values["output"]))
            for result in scorer.scores(*texts):
                total.add(result)
                if not values["summary"]:
                    write(output, scorer.format(result))
            logger.info(
                "Total log probs %s : Total sentences %d : Total words %d",
                total.summary("ce-sum"),
                total.sentences,
                total.words,
            )
            if values["summary"]:
                write(output, total.summary(values["summary"]))
        report_programs(programs)
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)
    return None
