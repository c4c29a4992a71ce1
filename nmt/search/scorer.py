"""Scores of given translations under a Marian model (``mgraph score``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from mgraph import Plan, compiled
from nmt.files import load_model
from nmt.models import Model, Source
from nmt.runtime import compilation_cache, devices
from nmt.settings import SCORE, OptionError, ScoreOptions, products_in, require_files, require_readable
from nmt.settings.config import takes
from nmt.text.batches import Batching, pad
from nmt.text.output import (
    InOrder,
    alignment_field,
    read_alignment,
    score_line,
    significant,
    with_feature,
    word_scores_field,
)
from nmt.text.parallel import NBestRows, ParallelLines, source_names
from nmt.text.sentences import LineEncoder, Sentence
from nmt.text.shapes import batch_bucket, length_bucket
from nmt.text.vocabs.loading import load_vocabs

Streams = Sequence[Sequence[int]]
"""The ids of a sentence in every source stream, then of its translation."""

MOST_LOGITS = 1 << 27
"""How many logits, at 4 bytes each, are computed at once; larger batches are split."""


class Scored(NamedTuple):
    """A translation under a model; scores are natural logarithms."""

    log_prob: float
    """The sum over the words."""
    word_scores: np.ndarray
    """Of each target word, float32 ``(words,)``."""
    attention: np.ndarray | None
    """To the words of the first source, float32 ``(words, source words)``; None if not requested or if the
    model has none."""


@dataclass(frozen=True)
class ScoringPlan(Plan, by_key=["model"]):
    """``Model.scorer`` for sentences padded to these lengths."""

    model: Model
    batch: int
    lengths: tuple[int, ...]
    trg_length: int
    attention: bool

    def __str__(self) -> str:
        lengths = " and ".join(map(str, self.lengths)) or "no"
        return f"scoring of {self.batch} sentences, {lengths} to {self.trg_length} words"

    def __call__(self, params: Any, sources: Sequence[Source], target: Source) -> Any:
        shapes = self.batch, self.lengths, self.trg_length
        scorer = self.model.scorer(*shapes, attention=self.attention, derivatives="jax")
        return scorer(params, sources, target)


def score(model: Model, samples: Sequence[Streams], *, attention: bool = False) -> list[Scored]:
    """The log-probabilities of target ids given source ids, for each sentence; natural logarithms.

    samples: ids with ``</s>``, at least one in every stream. attention: whether to return it, too.
    Neither padding (to ``length_bucket``) nor the other sentences change a score.
    """
    if not samples:
        return []
    for number, streams in enumerate(samples):
        if len(streams) != model.sources + 1:
            raise ValueError(f"sentence {number} has {len(streams)} streams, expected {model.sources + 1}")
        if not all(map(len, streams)):
            raise ValueError(f"sentence {number} has no ids in one stream, not even </s>")
    longest = length_bucket(max(len(streams[-1]) for streams in samples))
    at_once = max(1, MOST_LOGITS // (longest * model.dim_vocabs[-1]))
    while batch_bucket(at_once) > at_once:
        at_once -= 1
    scores: list[Scored] = []
    for first in range(0, len(samples), at_once):
        scores += _score_padded(model, samples[first : first + at_once], attention and model.attends)
    return scores


def _score_padded(model: Model, samples: Sequence[Streams], attention: bool) -> list[Scored]:
    padded = pad(list(zip(*samples, strict=True)))
    *sources, target = map(Source, padded.ids, padded.masks)
    batch, *lengths, trg_length = padded.shape
    found = compiled(ScoringPlan(model, batch, tuple(lengths), trg_length, attention))(
        model.params, sources, target
    )
    log_probs, weights = map(np.asarray, found) if isinstance(found, tuple) else (np.asarray(found), None)
    scores = []
    for row, streams in enumerate(samples):
        words = log_probs[row, : len(streams[-1])]
        aligned = None if weights is None else weights[row, : len(words), : len(streams[0])]
        scores.append(Scored(float(words.sum(dtype=np.float64)), words, aligned))
    return scores


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one sentence and its translation, in natural logarithms.

    line: its number, from 0.
    log_prob: the log-probability of the target given the sources, ``</s>`` included; NaN if not scored.
    word_scores: the log-probability of each target word; they sum to ``log_prob``.
    problem: why it was not scored, or empty.
    attention: float32 ``[target word, word of the first source]``, with ``alignment`` only.
    entry: the line of the n-best list, with ``n_best`` only.
    """

    line: int
    log_prob: float
    word_scores: tuple[float, ...]
    problem: str = ""
    attention: np.ndarray | None = None
    entry: bytes = b""


@dataclass(slots=True)
class Total:
    """Sums over the scored pairs, for ``--summary``."""

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
    """Scores translations with one model; its results are those of ``mgraph score``.

    model: path of the model file. vocabs: paths of the vocabularies of each source and the target.
    given: Marian's scoring options in snake_case with Marian's defaults, such as ``normalize=True`` or
    ``mini_batch=16``; before JAX has started also ``cpu_threads``, ``devices`` and ``compilation_cache``.
    ``nmt.settings.ScoreOptions`` lists them with types; an object of that class may be passed in place of
    ``model``.

    Texts are the lines of each source, then of the target: ``score(source, target)``, or ``score(target)``
    for a language model. With ``n_best`` the target is an n-best list; with ``tsv`` one text has all fields.

    Raises as ``Translator`` does; ParallelTextError if the texts differ in length and NBestListError for an
    invalid line of an n-best list, both after the scores of the lines before.
    """

    @takes(SCORE)
    def __init__(self, model: Any, vocabs: Any = (), **given: Any) -> None:
        if vocabs:
            given["vocabs"] = vocabs
        said = isinstance(model, ScoreOptions)
        options = replace(model, **given) if said else SCORE.from_python({"model": model, **given})
        self.options: ScoreOptions = options
        check_scoring(options)
        self.alignment = read_alignment(options.alignment)
        compilation_cache.use(options.compilation_cache)
        if options.chooses_device:
            devices.start(options.cpu_threads, options.devices)
        self.model = load_model(options.model, precision=products_in(options))
        self.streams = self.model.sources + 1
        if options.tsv and options.tsv_fields not in (0, self.streams):
            raise OptionError(f"--tsv-fields: this model needs {self.streams}, got {options.tsv_fields}")
        self.encoder = LineEncoder(
            load_vocabs(options.vocabs, self.model.dim_vocabs, owner=options.model),
            options.max_length,
            options.max_length_crop,
            self.model.options.right_left,
            options.tsv,
        )

    def score(self, *texts: Iterable[str | bytes]) -> list[float]:
        """The score of each line, as ``mgraph score`` prints it: per word with ``normalize``."""
        return [self.value(result) for result in self.scores(*texts)]

    def scores(self, *texts: Iterable[str | bytes]) -> Iterator[Score]:
        """The scores of streams of lines, in order, each as soon as it is ready."""
        finished: InOrder[Score] = InOrder()
        rows = self._rows(texts)
        samples = (self.encoder.sentence(number, lines) for number, lines in enumerate(rows))
        groups = Batching(self.options).maxi_batches(samples)
        for batch in chain.from_iterable(groups):
            for result in self._score_batch(batch):
                entry = rows.entry(result.line) if isinstance(rows, NBestRows) else b""
                finished.add(result.line, replace(result, entry=entry))
            yield from finished.take()
        rows.check()

    def value(self, result: Score) -> float:
        """``result`` as one number: the log-probability, per word if ``normalize`` is set."""
        divide = self.options.normalize and result.word_scores
        return result.log_prob / len(result.word_scores) if divide else result.log_prob

    def format(self, result: Score) -> str:
        """The text that ``mgraph score`` prints for a score, in Marian's format."""
        fields = []
        if self.alignment is not None and result.attention is not None:
            fields.append(alignment_field(self.alignment, result.attention.tolist()))
        if self.options.word_scores and result.word_scores:
            fields.append(word_scores_field(result.word_scores))
        value = self.value(result)
        if self.options.n_best:
            return with_feature(result.entry, f"{self.options.n_best_feature}= {significant(value)}", fields)
        return score_line(value, fields)

    def _rows(self, texts: tuple[Iterable[str | bytes], ...]) -> ParallelLines | NBestRows:
        """The rows of all streams."""
        tsv = self.options.tsv
        wanted = 1 if tsv else self.streams
        if len(texts) != wanted:
            needed = "one text is needed with --tsv" if tsv else f"this model needs {wanted} texts"
            raise OptionError(f"--train-sets: {needed}, got {len(texts)}")
        names = ["text"] if tsv else [*source_names(self.model.sources), "target"]
        if self.options.n_best:
            return NBestRows(texts[:-1], texts[-1])
        return ParallelLines(texts, names)

    def _score_batch(self, batch: list[Sentence]) -> Iterator[Score]:
        if batch[0].problem:
            yield Score(batch[0].line, math.nan, (), batch[0].problem)
            return
        streams = [sample.sequences for sample in batch]
        found = score(self.model, streams, attention=self.alignment is not None)
        for sample, (total, words, attention) in zip(batch, found, strict=True):
            yield Score(sample.line, float(total), tuple(map(float, words)), attention=attention)


def check_scoring(options: ScoreOptions) -> None:
    """Check the options before a device is started or the model is loaded: OptionError for invalid values,
    OSError for a file that cannot be read."""
    products_in(options)
    require_files("--model", [options.model], options.vocabs)
    read_alignment(options.alignment)
    if options.n_best and options.tsv:
        raise OptionError("--n-best cannot go with --tsv")
    require_readable("--model", [options.model])
    require_readable("--vocabs", options.vocabs)
