"""Log-probabilities of given translations under a Marian model, as ``mgraph score`` prints them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from mgraph.errors import MGraphError
from nmt import devices
from nmt.batches import Sample, batches
from nmt.lines import read_lines
from nmt.models import load_model
from nmt.options import SCORE, require_files
from nmt.output import InOrder, score_line, significant
from nmt.samples import LineEncoder, load_vocabs
from nmt.scoring import score as score_batch

BATCH_OPTIONS = ("mini_batch", "mini_batch_words", "maxi_batch", "maxi_batch_sort")


class ParallelTextError(MGraphError, ValueError):
    """Source and target do not have the same number of lines."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one pair of lines, in natural logarithms.

    line: its number, from 0.
    log_prob: the log-probability of the target given the source, ``</s>`` included; not a number
        if the pair was not scored.
    word_scores: the log-probability of each target word; they sum to `log_prob`.
    problem: why the pair was not scored, or empty.
    """

    line: int
    log_prob: float
    word_scores: tuple[float, ...]
    problem: str = ""


@dataclass(slots=True)
class Total:
    """Sums over the pairs that were scored, for ``--summary``."""

    log_prob: float = 0.0
    sentences: int = 0
    words: int = 0

    def add(self, result: Score) -> None:
        """Count one pair, unless it has a problem."""
        if not result.problem:
            self.log_prob += result.log_prob
            self.sentences += 1
            self.words += len(result.word_scores)

    def summary(self, kind: str) -> str:
        """The cost as Marian prints it: a positive number with six significant digits.

        ``ce-sum``: the sum of -log p. ``ce-mean`` (``cross-entropy``): per sentence.
        ``ce-mean-words``: per target word, ``</s>`` counted. ``perplexity``: exp of that.
        """
        cost = -self.log_prob
        if kind == "ce-sum":
            return significant(cost)
        per_word = cost / self.words if self.words else math.nan
        if kind == "ce-mean-words":
            return significant(per_word)
        if kind == "perplexity":
            return significant(math.exp(per_word))
        return significant(cost / self.sentences if self.sentences else math.nan)


class Scorer:
    """Scores pairs of lines with one model; what it returns is what ``mgraph score`` prints.

    model: path of the model file. vocabs: paths of the source and the target vocabulary.
    options: Marian's scoring options in snake_case with Marian's defaults: ``normalize,
    word_scores, max_length=1000, max_length_crop, mini_batch=64, mini_batch_words=0,
    maxi_batch=100, maxi_batch_sort="trg"``, and, before JAX has started, ``cpu_threads`` and
    ``devices``.

    Raises as `Translator` does; ParallelTextError if source and target differ in length, after
    the pairs before that.
    """

    def __init__(self, model: Any, vocabs: Any, **options: Any) -> None:
        self.options = SCORE.python_values({"model": model, "vocabs": vocabs, **options})
        options = self.options
        require_files(options)
        if options["cpu_threads"] or options["devices"] != ("0",):
            devices.start(options["cpu_threads"], options["devices"])
        self.model = load_model(options["model"])
        vocabs = load_vocabs(options["vocabs"], self.model.dim_vocabs)
        self.encoder = LineEncoder(vocabs, options["max_length"], options["max_length_crop"])

    def score(self, sources: Iterable[str | bytes], targets: Iterable[str | bytes]) -> list[float]:
        """The score of each pair, as ``mgraph score`` prints it: per word with ``normalize``."""
        return [self.value(result) for result in self.scores(sources, targets)]

    def scores(self, sources: Iterable[str | bytes], targets: Iterable[str | bytes]) -> Iterator[Score]:
        """The scores of a stream of pairs, in order, each as soon as it can be had."""
        finished: InOrder[Score] = InOrder()
        batching = {name: self.options[name] for name in BATCH_OPTIONS}
        pairs = _Pairs(sources, targets)
        samples = (self.encoder.sample(number, pair) for number, pair in enumerate(pairs))
        for batch in batches(samples, **batching):
            for result in self._score_batch(batch):
                finished.add(result.line, result)
            yield from finished.take()
        pairs.check()

    def value(self, result: Score) -> float:
        """`result` as one number: the log-probability, per word if ``normalize`` is set."""
        divide = self.options["normalize"] and result.word_scores
        return result.log_prob / len(result.word_scores) if divide else result.log_prob

    def format(self, result: Score) -> str:
        """The text that ``mgraph score`` prints for a score, in Marian's format."""
        word_scores = result.word_scores if self.options["word_scores"] else ()
        return score_line(self.value(result), word_scores)

    def _score_batch(self, batch: list[Sample]) -> Iterator[Score]:
        if batch[0].problem:
            yield Score(batch[0].line, math.nan, (), batch[0].problem)
            return
        pairs = [(sample.sequences[0], sample.sequences[1]) for sample in batch]
        for sample, (total, words) in zip(batch, score_batch(self.model, pairs), strict=True):
            yield Score(sample.line, float(total), tuple(map(float, words)))


class _Pairs:
    """Lines of source and target together, as long as both last."""

    def __init__(self, sources: Iterable[str | bytes], targets: Iterable[str | bytes]) -> None:
        self._streams = zip_longest(read_lines(sources), read_lines(targets))
        self._problem = ""

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        for number, (source, target) in enumerate(self._streams):
            if source is None or target is None:
                shorter = "source" if source is None else "target"
                self._problem = f"the {shorter} ends after {number} lines, the other goes on"
                return
            yield source, target

    def check(self) -> None:
        """Raise ParallelTextError if one side had more lines than the other."""
        if self._problem:
            raise ParallelTextError(self._problem)
