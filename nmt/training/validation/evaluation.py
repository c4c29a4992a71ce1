"""What one set of parameters makes of the validation set, computed once for all metrics that want it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from nmt.models import Model
from nmt.search.results import Translation
from nmt.search.scorer import score
from nmt.search.service import TranslationService
from nmt.text.lines import open_output
from nmt.text.output import InOrder
from nmt.training.validation.data import ValidationSet

logger = logging.getLogger("nmt.translating")

ALL_LOGGED = 5
"""Translations up to this number are logged, and then ever fewer: numbers 10, 20, 40, ..."""


class Cost(NamedTuple):
    """The cross entropy of the validation set."""

    cost: float
    """The sum of -ln p over the target words."""
    words: int
    """Target words, ``</s>`` included."""
    sentences: int


class Evaluation:
    """One validation. Nothing is computed before it is asked for, and nothing twice.

    model: with the parameters to evaluate. service: translates with it. data: the validation set.
    quiet: whether to log no translations (``--quiet-translation``). save_dev: saves the model for a script.
    """

    def __init__(
        self,
        model: Model,
        service: TranslationService,
        data: ValidationSet,
        save_dev: Callable[[], None],
        *,
        quiet: bool = False,
    ) -> None:
        self.model, self.service, self.data, self.quiet = model, service, data, quiet
        self.save_dev = save_dev
        self._translations: list[Translation] | None = None

    @cached_property
    def cost(self) -> Cost:
        """The cross entropy of all target words; sums are float64 and do not depend on the batches."""
        costs = [0.0] * len(self.data.samples)
        for batch in self.data.batches():
            found = score(self.model, [sample.sequences for sample in batch])
            for sample, scored in zip(batch, found, strict=True):
                costs[sample.line] = -scored.log_prob
        words = sum(len(sample.sequences[-1]) for sample in self.data.samples)
        return Cost(math.fsum(costs), words, len(costs))

    def translations(self) -> Iterator[Translation]:
        """The translations of the sentences, in the order of the batches.

        They are logged while they are made, in the order of the lines, unless ``quiet``.
        """
        if self._translations is not None:
            yield from self._translations
            return
        if not self.quiet:
            logger.info("Translating validation set...")
        began = time.perf_counter()
        finished: InOrder[Translation] = InOrder()
        found = []
        for batch in self.data.batches():
            for translation in self.service.translate(batch):
                found.append(translation)
                yield translation
                finished.add(translation.line, translation)
                self._log(finished)
        if not self.quiet:
            logger.info("Total translation time: %.5fs", time.perf_counter() - began)
        self._translations = found

    def write(self, path: str, *, n_best: bool) -> None:
        """Write the translations in the order of the lines; with ``n_best`` all of each, if the options say
        so.

        OSError if the file cannot be written.
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
