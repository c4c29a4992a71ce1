"""The validation set, and its costs and translations, computed once for all metrics."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mgraph.errors import MGraphError
from nmt.models import Model
from nmt.search.results import Translation
from nmt.search.scoring import Scoring
from nmt.search.service import TranslationService
from nmt.settings import OptionError, TrainOptions, require_readable
from nmt.text.background import Stopped
from nmt.text.lines import STANDARD_INPUT, open_output
from nmt.text.output import InOrder
from nmt.text.parallel import read_rows
from nmt.text.sentences import LineEncoder, Sentence
from nmt.text.shapes import length_bucket
from nmt.text.vocabs.base import Vocab


class ValidationSetError(MGraphError, ValueError):
    """A validation set is empty or has an invalid line."""


@dataclass(frozen=True)
class ValidationSet:
    """The sentences of ``--valid-sets`` in the order of the files: ids of each source, then of the target,
    ``</s>`` included.

    mini_batch: sentences in a batch; results do not depend on it.
    """

    samples: tuple[Sentence, ...]
    mini_batch: int

    @classmethod
    def read(
        cls, options: TrainOptions, vocabs: Sequence[Vocab], *, right_left: bool = False
    ) -> ValidationSet:
        """Read one file per vocabulary, or with ``--tsv`` one file with fields.

        Sentences longer than ``--valid-max-length`` words, ``</s>`` included, are cut to it and keep
        ``</s>``; empty ones are ``</s>`` alone. ``right_left``: reverse the words except ``</s>``.

        OptionError for the wrong number of files; ParallelTextError if they differ in length;
        ValidationSetError for files without lines and for lines with too many fields; OSError for unreadable
        files.
        """
        paths, tsv = options.valid_sets, options.tsv
        check_sets(paths, 1 if tsv else len(vocabs), tsv)
        encoder = LineEncoder(
            vocabs, options.valid_max_length, max_length_crop=True, right_left=right_left, tsv=tsv
        )
        names, samples = " and ".join(paths), []
        for number, row in enumerate(read_rows(paths)):
            sample = encoder.sentence(number, row)
            if sample.problem:
                raise ValidationSetError(f"{names}, line {number + 1}: {sample.problem}")
            samples.append(sample)
        if not samples:
            raise no_lines(paths)
        return cls(tuple(samples), options.valid_mini_batch)

    def ordered(self) -> list[Sentence]:
        """The samples, the longest first, by ``length_bucket`` of the longest stream."""
        return sorted(self.samples, key=_bucket, reverse=True)


def no_lines(paths: Sequence[str]) -> ValidationSetError:
    """The error about a validation set without lines."""
    return ValidationSetError(f"--valid-sets: no lines in {' and '.join(paths)}")


def check_sets(paths: Sequence[str], wanted: int, tsv: bool) -> None:
    """OptionError for the wrong number of files, OSError for an unreadable one."""
    if len(paths) != wanted:
        what = "one file with --tsv is" if tsv else f"{wanted} files, one for each vocabulary, are"
        raise OptionError(f"--valid-sets: {what} needed, got {len(paths)}")
    for path in paths:
        if path in STANDARD_INPUT:
            raise OptionError(f"--valid-sets: files are needed, got {path}")
    require_readable("--valid-sets", paths)


def _bucket(sample: Sentence) -> int:
    return length_bucket(max(map(len, sample.sequences)))


logger = logging.getLogger("nmt.translating")

ALL_LOGGED = 5
"""Translations up to this number are logged, then numbers 10, 20, 40, ..."""


class Cost(NamedTuple):
    """The cross entropy of the validation set."""

    cost: float
    """The sum of -ln p over the target words."""
    words: int
    """Target words, ``</s>`` included."""
    sentences: int
    correct: int = 0
    """Target words that are the most probable ones, given the words before them; 0 if not counted."""


class Evaluation:
    """One validation; each result is computed on demand, once.

    model: with the parameters to evaluate. service: translates with it. quiet: do not log translations
    (``--quiet-translation``). accuracy: count the correct words, too. save_dev: saves the model for a script.
    stopped: once it returns True, any computation raises ``Stopped``.
    """

    def __init__(
        self,
        model: Model,
        service: TranslationService,
        data: ValidationSet,
        save_dev: Callable[[], None],
        *,
        stopped: Callable[[], bool] = lambda: False,
        quiet: bool = False,
        accuracy: bool = False,
    ) -> None:
        self.accuracy = accuracy
        self.model, self.service, self.data, self.quiet = model, service, data, quiet
        self.save_dev, self.stopped = save_dev, stopped
        self._translations: list[Translation] | None = None

    def _heed_stop(self) -> None:
        """Raise ``Stopped`` if this evaluation must end."""
        if self.stopped():
            raise Stopped

    @cached_property
    def cost(self) -> Cost:
        """The cross entropy of all target words; sums are float64 and do not depend on the batches."""
        samples = self.data.samples
        costs, correct = [0.0] * len(samples), 0
        scoring = Scoring(self.model, mini_batch=self.data.mini_batch, best=self.accuracy)
        for index, found, best in scoring.scores_and_best([sample.sequences for sample in samples]):
            self._heed_stop()
            costs[samples[index].line] = -found.log_prob
            if best is not None:
                correct += int((best == np.asarray(samples[index].sequences[-1])).sum())
        words = sum(len(sample.sequences[-1]) for sample in samples)
        return Cost(math.fsum(costs), words, len(costs), correct)

    def translations(self) -> Iterator[Translation]:
        """The translations, the longest sentences first; logged in the order of the lines."""
        if self._translations is not None:
            yield from self._translations
            return
        if not self.quiet:
            logger.info("Translating validation set...")
        began = time.perf_counter()
        samples = self.data.ordered()
        places = {sample.line: place for place, sample in enumerate(samples)}
        finished: InOrder[Translation] = InOrder()
        done: InOrder[Translation] = InOrder()
        found = []
        for translation in self.service.translate(samples):
            self._heed_stop()
            done.add(places[translation.line], translation)
            for following in done.take():
                found.append(following)
                yield following
                finished.add(following.line, following)
            self._log(finished)
        if not self.quiet:
            logger.info("Total translation time: %.5fs", time.perf_counter() - began)
        self._translations = found

    def write(self, path: str, *, n_best: bool) -> None:
        """Write the translations in the order of the lines; OSError if the file cannot be written.

        n_best: write n-best lists, if the options ask for them.
        """
        lines = self.service.printing.lines if n_best else self.service.printing.best
        translations = sorted(self.translations(), key=lambda translation: translation.line)
        with open_output(path) as stream:
            for translation in translations:
                stream.write(lines(translation).encode("utf-8", "surrogateescape") + b"\n")

    def _log(self, finished: InOrder[Translation]) -> None:
        for translation in finished.take():
            if not self.quiet and is_logged(translation.line):
                best = self.service.printing.best(translation)
                logger.info("Best translation %d : %s", translation.line, best)


def is_logged(line: int) -> bool:
    """Whether the translation of a line, counted from 0, is logged."""
    tens, rest = divmod(line, 10)
    return line <= ALL_LOGGED or (rest == 0 and tens & (tens - 1) == 0)
