"""What one set of parameters makes of the validation set, computed once for all metrics that want it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from nmt.models import Model
from nmt.search.beam_search import BeamSearch
from nmt.search.results import Hypothesis
from nmt.search.scorer import score
from nmt.text.batches import Sample
from nmt.text.lines import open_output
from nmt.text.output import InOrder, best_line, n_best_line
from nmt.text.vocab import Vocab
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


class Translated(NamedTuple):
    """A sentence of the validation set with its translations, best first."""

    sample: Sample
    hypotheses: list[Hypothesis]
    texts: list[str]


@dataclass(frozen=True)
class TranslationOutput:
    """How translations are printed.

    vocab: of the target. right_left: whether words come from right to left. n_best, word_scores: what to
    print. quiet: whether to log no translations (``--quiet-translation``).
    """

    vocab: Vocab
    right_left: bool = False
    n_best: bool = False
    word_scores: bool = False
    quiet: bool = False

    def text(self, hypothesis: Hypothesis) -> str:
        """The text of a translation."""
        words = hypothesis.words
        return self.vocab.decode(words[::-1] if self.right_left else words)

    def best(self, item: Translated) -> str:
        """The line of the best translation."""
        return best_line(item.texts[0], item.hypotheses[0], word_scores=self.word_scores)

    def all(self, item: Translated) -> str:
        """The line of the best translation, or with ``n_best`` the lines of all."""
        if not self.n_best:
            return self.best(item)
        return "\n".join(
            n_best_line(item.sample.line, text, hypothesis, word_scores=self.word_scores)
            for text, hypothesis in zip(item.texts, item.hypotheses, strict=True)
        )


class Evaluation:
    """One validation. Nothing is computed before it is asked for, and nothing twice.

    model, search: with the parameters to evaluate. data: the validation set. output: of translations.
    save_dev: saves the model for a script.
    """

    def __init__(
        self,
        model: Model,
        search: BeamSearch,
        data: ValidationSet,
        output: TranslationOutput,
        save_dev: Callable[[], None],
    ) -> None:
        self.model, self.search, self.data, self.output = model, search, data, output
        self.save_dev = save_dev
        self._translated: list[Translated] | None = None

    @cached_property
    def cost(self) -> Cost:
        """The cross entropy of all target words; sums are float64 and do not depend on the batches."""
        costs = [0.0] * len(self.data.samples)
        for batch in self.data.batches():
            found = score(self.model, [sample.sequences for sample in batch])
            for sample, (log_prob, _) in zip(batch, found, strict=True):
                costs[sample.line] = -log_prob
        words = sum(len(sample.sequences[-1]) for sample in self.data.samples)
        return Cost(math.fsum(costs), words, len(costs))

    def translated(self) -> Iterator[Translated]:
        """The sentences with their translations, in the order of the batches.

        They are logged while they are made, unless ``TranslationOutput.quiet``.
        """
        if self._translated is not None:
            yield from self._translated
            return
        if not self.output.quiet:
            logger.info("Translating validation set...")
        began = time.perf_counter()
        finished: InOrder[Translated] = InOrder()
        found = []
        for batch in self.data.batches():
            for item in self._translate(batch):
                found.append(item)
                yield item
                finished.add(item.sample.line, item)
                self._log(finished)
        if not self.output.quiet:
            logger.info("Total translation time: %.5fs", time.perf_counter() - began)
        self._translated = found

    def write(self, path: str, *, n_best: bool) -> None:
        """Write the translations in the order of the lines; with ``n_best`` all of each, if the options say
        so.

        OSError if the file cannot be written.
        """
        lines = self.output.all if n_best else self.output.best
        items = sorted(self.translated(), key=lambda item: item.sample.line)
        with open_output(path) as stream:
            for item in items:
                stream.write(lines(item).encode("utf-8", "surrogateescape") + b"\n")

    def _translate(self, batch: list[Sample]) -> Iterator[Translated]:
        streams = list(zip(*(sample.sequences for sample in batch), strict=True))
        found = self.search.search(*streams[: self.search.streams])
        for sample, hypotheses in zip(batch, found, strict=True):
            yield Translated(sample, hypotheses, [self.output.text(hypothesis) for hypothesis in hypotheses])

    def _log(self, finished: InOrder[Translated]) -> None:
        for item in finished.take():
            if not self.output.quiet and is_logged(item.sample.line):
                logger.info("Best translation %d : %s", item.sample.line, self.output.best(item))


def is_logged(line: int) -> bool:
    """Whether the translation of a line, counted from 0, is logged."""
    tens, rest = divmod(line, 10)
    return line <= ALL_LOGGED or (rest == 0 and tens & (tens - 1) == 0)
