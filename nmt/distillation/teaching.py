"""The text from which the student learns: translations by the teacher."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from mgraph.errors import ArgumentError
from nmt.distillation.stages import StoppedError
from nmt.search.translator import Translator
from nmt.text.lines import open_input, read_lines
from nmt.text.parallel import ParallelTextError, read_rows
from nmt.training.validation.bleu import (
    BLEU_ORDER,
    ORDERS,
    NGramCounts,
    characters,
    separated,
    tokenized,
    words,
)

logger = logging.getLogger(__name__)

CHOICES = ("chrf", "bleu")
"""The metrics by which a candidate can be chosen."""
REPORTED = 30.0
"""Seconds between two reports of progress."""


def nearest(candidates: Sequence[str], reference: str, metric: str) -> str:
    """The candidate with the highest ``chrf`` or ``bleu`` against the reference, the first of equals.

    chrF (Popovic 2015) is computed for the sentence. BLEU adds one to the counts of n-grams of two words and
    more (Lin and Och 2004). ``ArgumentError`` for another metric, and without candidates.
    """
    if metric not in CHOICES:
        raise ArgumentError(f"expected a metric of {', '.join(CHOICES)}, got {metric!r}")
    if not candidates:
        raise ArgumentError("expected at least one candidate, got none")
    return max(candidates, key=lambda candidate: similarity(candidate, reference, metric))


def similarity(candidate: str, reference: str, metric: str) -> float:
    """The ``chrf`` or ``bleu`` of a sentence, from 0 to 100."""
    counts = NGramCounts(ORDERS.get(metric, BLEU_ORDER))
    ours, theirs = (segments(text, metric) for text in (candidate, reference))
    counts.add(ours, theirs)
    if metric == "chrf":
        return counts.chrf()
    counts.matches[1:] += 1
    counts.hypotheses[1:] += 1
    return counts.bleu()


def segments(text: str, metric: str) -> Sequence[str]:
    """The segments that the metric compares: characters for ``chrf``, else words as sacreBLEU splits them."""
    text = tokenized(text)
    return characters(text) if metric == "chrf" else words(separated(text))


def translate(
    translator: Translator,
    source: str,
    references: str,
    choose: str,
    target: Path,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Write to ``target`` a translation of each line of ``source``; continues where an earlier run stopped.

    choose: ``best``, or the metric by which ``nearest`` chooses among the translations of the beam.
    stopped: called after each line; StoppedError if it returns True. ParallelTextError if there are fewer or
    more references than lines.
    """
    part = target.with_name(f"{target.name}.part")
    done = whole_lines(part)
    if done:
        logger.info("[distill] %d lines are translated", done)
    n_best = None if choose == "best" else translator.options.beam_size
    with ExitStack() as files:
        lines = files.enter_context(open_input(source))
        output = files.enter_context(open(part, "ab"))
        given: Iterator[bytes] | None = None
        if n_best:
            given = read_lines(files.enter_context(open_input(references)))
            for _ in range(done):
                next(given, None)
        progress = _Progress(done)
        for translation in translator.translations(lines, n_best=n_best, done=done):
            text = translation.texts[0] if translation.texts else ""
            if given is not None:
                reference = next(given, None)
                if reference is None:
                    raise ParallelTextError(
                        f"{references} ends after {translation.line} lines, {source} goes on"
                    )
                if translation.texts:
                    text = nearest(translation.texts, reference.decode("utf-8", "replace"), choose)
            output.write(text.encode("utf-8", "surrogateescape") + b"\n")
            progress.add()
            if stopped():
                raise StoppedError(f"stopped after line {translation.line + 1} of {source}")
        if given is not None and next(given, None) is not None:
            raise ParallelTextError(f"{references} goes on after {progress.lines} lines, {source} ends")
    os.replace(part, target)


def whole_lines(path: Path) -> int:
    """How many lines a file has, after cutting off an incomplete last line; 0 without a file."""
    if not path.exists():
        return 0
    count = end = 0
    with open(path, "r+b") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                count, end = count + 1, end + len(line)
        stream.truncate(end)
    return count


def write_corpus(source: str, translated: str | Path, folder: Path) -> tuple[Path, Path]:
    """Write the pairs in which neither side is empty; returns the paths of both sides. ParallelTextError if
    there are none, or if one text ends before the other."""
    sides = folder / "corpus.source", folder / "corpus.target"
    left = kept = 0
    with ExitStack() as files:
        outputs = [files.enter_context(open(side, "wb")) for side in sides]
        for pair in read_rows([source, os.fspath(translated)]):
            if not all(text.strip() for text in pair):
                left += 1
                continue
            kept += 1
            for output, text in zip(outputs, pair, strict=True):
                output.write(text + b"\n")
    if not kept:
        raise ParallelTextError(f"{source}: no line has a translation, so there is nothing to learn from")
    if left:
        logger.info("[distill] %d lines without a word or a translation are left out", left)
    return sides


class _Progress:
    """Logs the progress of the translation."""

    def __init__(self, done: int) -> None:
        self._done, self._new, self._began = done, 0, time.perf_counter()
        self._next = REPORTED

    @property
    def lines(self) -> int:
        """How many lines are translated."""
        return self._done + self._new

    def add(self) -> None:
        self._new += 1
        seconds = time.perf_counter() - self._began
        if seconds >= self._next:
            self._next = seconds + REPORTED
            logger.info(
                "[distill] %d lines are translated, %.1f a second",
                self.lines,
                self._new / seconds,
            )
