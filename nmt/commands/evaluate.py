"""``mgraph evaluate``: score translations with COMET and BLEURT models, as marian evaluate does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from nmt.commands.common import write
from nmt.commands.pooling import reading
from nmt.settings import OptionError
from nmt.settings.metrics import EVALUATE, EvaluateOptions
from nmt.text.lines import open_output
from nmt.text.parallel import ParallelLines

logger = logging.getLogger(__name__)

COMMAND = EVALUATE

Scores = tuple[Iterator[tuple[float, ...]], Callable[[], tuple[float, ...]]]
"""The scores of each line, and a function that afterwards returns those of all lines."""
Scored = Callable[[EvaluateOptions, Sequence[BinaryIO]], Scores]


def run(options: EvaluateOptions, argv: Sequence[str]) -> None:
    """Score the lines of ``--train-sets`` as marian evaluate does, or with text metrics, or both."""
    if options.metrics and not options.vocabs:
        _print(options, argv, _texts_only)
    else:
        _print(options, argv, _texts_too if options.metrics else _by_model)


def _print(options: EvaluateOptions, argv: Sequence[str], scored: Scored) -> None:
    """Print the scores of lines, and their average."""
    with reading(EVALUATE, options, argv) as texts:
        lines, whole = scored(options, texts)
        with open_output(options.output) as output:
            for scores in lines:
                if options.average != "only":
                    write(output, _line(scores, options.width))
            if options.average != "skip":
                write(output, _line(whole(), options.width))


def _by_model(options: EvaluateOptions, texts: Sequence[BinaryIO]) -> Scores:
    from nmt.search.evaluator import Evaluator, average

    evaluator, found = Evaluator(options), list[tuple[float, ...]]()
    evaluator.require_inputs(len(texts))

    def lines() -> Iterator[tuple[float, ...]]:
        for result in evaluator.scores(*texts):
            if options.average != "skip":
                found.append(result.scores)
            yield result.scores

    return lines(), lambda: average(found, evaluator.model.numbers)


def _texts_only(options: EvaluateOptions, texts: Sequence[BinaryIO]) -> Scores:
    return _of_texts(options, ("translation", "reference"), columns(options, texts, 2))


def _texts_too(options: EvaluateOptions, texts: Sequence[BinaryIO]) -> Scores:
    from nmt.search.evaluator import Evaluator, average

    evaluator = Evaluator(replace(options, tsv=False, tsv_fields=0))
    found = columns(options, texts, len(evaluator.names), padded=True)
    lines, whole = _of_texts(options, evaluator.names, found)
    scores = [result.scores for result in evaluator.scores(*found)]
    both = (own + of_texts for own, of_texts in zip(scores, lines, strict=True))
    return both, lambda: average(scores, evaluator.model.numbers) + whole()


def _of_texts(options: EvaluateOptions, names: Sequence[str], found: list[list[bytes]]) -> Scores:
    """The text metrics of each line, and of all lines together."""
    from nmt.search.text_metrics import TextMetrics

    if "reference" not in names:
        raise OptionError(f"--metrics: a reference is needed, got only {', '.join(names)}")
    metrics = TextMetrics(options.metrics)
    translations, references = (
        [line.decode("utf-8", "replace") for line in found[names.index(name)]]
        for name in ("translation", "reference")
    )
    pairs = zip(translations, references, strict=True)

    def whole() -> tuple[float, ...]:
        scores = metrics.corpus(translations, references)
        for signature in metrics.signatures if translations else ():
            logger.info("[metrics] %s", signature)
        return scores

    return (metrics.sentence(*pair) for pair in pairs), whole


def columns(
    options: EvaluateOptions, texts: Sequence[BinaryIO], number: int, *, padded: bool = False
) -> list[list[bytes]]:
    """All lines of each of ``number`` texts. ParallelTextError if texts differ in length; OptionError for
    another number of texts, and for a line of ``--tsv`` with another number of fields.

    padded: missing fields are empty, as when a model alone reads the line.
    """
    if options.tsv_fields not in (0, number) or (not options.tsv and len(texts) != number):
        given = options.tsv_fields if options.tsv else len(texts)
        raise OptionError(f"--train-sets: expected {number} texts, got {given}")
    rows = ParallelLines(texts, [f"text {i + 1}" for i in range(len(texts))])
    found: list[list[bytes]] = [[] for _ in range(number)]
    for line, row in enumerate(rows, 1):
        fields = row[0].split(b"\t") if options.tsv else list(row)
        if padded:
            fields += [b""] * (number - len(fields))
        if len(fields) != number:
            raise OptionError(f"--tsv: expected {number} fields, line {line} has {len(fields)}")
        for column, field in zip(found, fields, strict=True):
            column.append(field)
    rows.check()
    return found


def _line(scores: Sequence[float], width: int) -> str:
    """Numbers, each followed by a space."""
    return "".join(f"{score:.{width}f} " for score in scores)
