"""``mgraph score``: score given translations, as marian-scorer does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace

from mgraph import compile_stats
from nmt.commands.common import greet, report_programs, require_distinct, write
from nmt.commands.folders import chooses_scored, with_scored_folder
from nmt.commands.sharing import Results, SharedWork, Work, check_sharing
from nmt.runtime.log import logging_as
from nmt.settings import SCORE, OptionError, ScoreOptions, require_files, require_readable, require_writable
from nmt.text.lines import open_input, open_output
from nmt.text.sharing.parts import Sums, added

logger = logging.getLogger(__name__)

COMMAND = replace(
    SCORE, complete=lambda given: with_scored_folder(SCORE.complete(given)), sets_aside=chooses_scored
)


def run(options: ScoreOptions, argv: Sequence[str]) -> None:
    """Score the lines of ``--train-sets``, as marian-scorer does."""
    with logging_as(options):
        _check(options)
        greet(SCORE, argv, options)
        from nmt.search.scorer import Total, check_scoring

        def summary(sums: Sums) -> str:
            return Total.of(sums).summary(options.summary)

        check_scoring(options)
        began, programs = time.perf_counter(), compile_stats()
        if options.shares:
            shared = SharedWork(SCORE, options, options.train_sets, n_best=options.n_best)
            sums = shared.do(lambda: _scoring(options), summary if options.summary else None)
        else:
            sums = _score(options, summary if options.summary else None)
        if sums is not None:
            total = Total.of(sums)
            logger.info(
                "Total log probs %s : Total sentences %d : Total words %d",
                total.summary("ce-sum"),
                total.sentences,
                total.words,
            )
        report_programs(programs)
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)


def _check(options: ScoreOptions) -> None:
    """OptionError for conflicts; OSError for files that cannot be read or written."""
    require_files("--model", [options.model], options.vocabs)
    if not options.train_sets:
        raise OptionError("--train-sets: the sources and the target are needed, got none")
    inputs = {"--train-sets": options.train_sets, "--model": [options.model], "--vocabs": options.vocabs}
    require_distinct({**inputs, "--pieces": options.pieces}, options.output)
    if options.summary:
        others = {"normalize": options.normalize, "word-scores": options.word_scores}
        for name, value in {**others, "alignment": options.alignment}.items():
            if value:
                raise OptionError(f"--{name} cannot go with --summary")
    require_readable("--train-sets", options.train_sets)
    require_writable("--output", options.output)
    check_sharing("--train-sets", options.train_sets, options)


def _score(options: ScoreOptions, summary: Callable[[Sums], str] | None) -> Sums:
    """Write the scores of all lines, or only their summary; returns the totals."""
    work = _scoring(options)
    sums: Sums = {}
    with ExitStack() as files:
        texts = [files.enter_context(open_input(path)) for path in options.train_sets]
        output = files.enter_context(open_output(options.output))
        for text, counts in work(texts):
            sums = added(sums, counts)
            if not summary:
                write(output, text)
        if summary:
            write(output, summary(sums))
    return sums


def _scoring(options: ScoreOptions) -> Work:
    """Load the model, and return the work of scoring with it."""
    from nmt.search.scorer import Scorer, Total

    scorer = Scorer(options)
    scorer.require_inputs(len(options.train_sets))

    def work(texts: Sequence[Iterator[bytes]], *, first: int = 0, done: int = 0) -> Results:
        for result in scorer.scores(*texts, first=first, done=done):
            total = Total()
            total.add(result)
            yield "" if options.summary else scorer.format(result), asdict(total)

    return work
