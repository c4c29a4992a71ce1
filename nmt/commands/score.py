"""``mgraph score``: score given translations, as marian-scorer does."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from nmt.commands.common import asks_for_help, greet, require_texts, started, write
from nmt.config import parse
from nmt.lines import open_input, open_output
from nmt.log import logging_as
from nmt.options import SCORE, OptionError, require_files

logger = logging.getLogger(__name__)

COMMAND = SCORE


def run(argv: Sequence[str]) -> int | None:
    """Score the lines of ``--train-sets``, as marian-scorer does."""
    if asks_for_help(SCORE, argv):
        return None
    values = parse(SCORE, argv)
    require_files(values)
    require_texts(values)
    if values["summary"]:
        for name in ("normalize", "word_scores"):
            if values[name]:
                raise OptionError(f"--{name.replace('_', '-')} cannot go with --summary")
    with logging_as(values):
        greet(SCORE, argv, values)
        from nmt.scorer import Scorer, Total

        began = time.perf_counter()
        scorer = Scorer(**started(SCORE, values))
        source, target = values["train_sets"]
        total = Total()
        with (
            open_input(source) as sources,
            open_input(target) as targets,
            open_output(values["output"]) as output,
        ):
            for result in scorer.scores(sources, targets):
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
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)
    return None
