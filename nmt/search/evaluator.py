"""Scores of translations by metric models (``mgraph evaluate``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from nmt.files.metrics import load_metric, read_metric
from nmt.search.made_from_options import MadeFromOptions
from nmt.search.pooling import Pooling, started
from nmt.settings import OptionError
from nmt.settings.config import takes
from nmt.settings.metric_options import METRICS
from nmt.settings.metrics import EVALUATE, EvaluateOptions, precision_of
from nmt.text.fields import FieldEncoder
from nmt.text.vocabs.loading import load_vocabs

NAMES = {
    "comet-qe": ("source", "translation"),
    "comet": ("source", "translation", "reference"),
    "bleurt": ("translation", "reference"),
}
"""The texts of a line, by type; a ``comet-unified`` model reads the texts that it was trained on."""


class MetricScore(NamedTuple):
    """The scores of one line."""

    line: int
    """Its number, from 0."""
    scores: tuple[float, ...]
    """One score, or with COMET-QE two, for the pair and for the pair in the other order; NaN if left out."""
    problem: str = ""
    """Why the line was left out, or empty."""


class Evaluator(MadeFromOptions):
    """Scores translations with a COMET or BLEURT model; its results are those of ``mgraph evaluate``.

    model: path of the model file. vocabs: paths of the vocabularies of each text.
    given: Marian's options of ``evaluate`` in snake_case with Marian's defaults, such as ``like="comet"``
    or ``mini_batch=16``; an object of ``nmt.settings.metrics.EvaluateOptions`` may be passed in place of
    ``model``.

    Texts are source and translation (``comet-qe``), source, translation and reference (``comet``), or
    translation and reference (``bleurt``). With ``tsv`` one text has all fields.

    Raises OptionError for an invalid value and for a line of ``tsv`` with too many fields, TypeError for an
    unknown option, ModelFileError and other MGraphErrors for files that cannot be used, OSError for missing
    ones; ParallelTextError if texts differ in length, after the scores of the preceding lines.
    """

    @takes(EVALUATE)
    def __init__(self, model: Any, vocabs: Any = (), **given: Any) -> None:
        options = self.options = started(EVALUATE, EvaluateOptions, model, vocabs, given)
        file = read_metric(options.model)
        if file is None:
            raise OptionError(f"--model: {options.model} is no metric; its types are {', '.join(METRICS)}")
        kind, texts = file.options.type, file.texts or len(options.vocabs)
        vocabs = load_vocabs(options.vocabs, [file.dim_vocab] * texts, owner=options.model)
        separator = vocabs[-1].eos_id
        self.model = load_metric(file, options, separator=separator, precision=precision_of(options))
        if texts > 1 and self.model.metric.input_join_fields != (self.model.streams == 1):
            reads = "joined texts: it must be set" if self.model.streams == 1 else "texts one by one"
            raise OptionError(f"--input-join-fields: metrics of type {kind} read {reads}")
        self.names = NAMES.get(kind, tuple(f"text {number + 1}" for number in range(texts)))
        if options.tsv and options.tsv_fields not in (0, texts):
            raise OptionError(f"--tsv-fields: a {kind} model needs {texts}, got {options.tsv_fields}")
        longest = self.model.longest or options.max_length
        self.encoder = FieldEncoder(
            vocabs,
            self.model.metric,
            min(options.max_length, longest),
            options.max_length_crop,
            options.tsv,
            self.model.options.separator_symbol
            if "separator-symbol" in self.model.options.given
            else options.separator_symbol,
        )
        self._pooling = Pooling(self.model, options.mini_batch, options.mini_batch_words)

    def __repr__(self) -> str:
        return f"Evaluator({self.model!r}; {', '.join(map(repr, self.encoder.vocabs))})"

    def score(self, *texts: Iterable[str | bytes]) -> list[float]:
        """The first score of each line; NaN for a line that is left out."""
        return [result.scores[0] for result in self.scores(*texts)]

    def scores(self, *texts: Iterable[str | bytes]) -> Iterator[MetricScore]:
        """The scores of streams of lines, in order, ``mini_batch * maxi_batch`` lines at a time."""
        self.require_inputs(len(texts))
        wanted = ("fields",) if self.options.tsv else self.names
        for line, found, problem in self._pooling.lines(self.encoder, texts, wanted, self.options.maxi_batch):
            yield MetricScore(line, tuple(map(float, found)), problem)

    def require_inputs(self, number: int) -> None:
        """OptionError unless ``number`` is the expected number of texts."""
        names = ", ".join(self.names)
        if self.options.tsv and number != 1:
            raise OptionError(f"--tsv takes one text with the fields {names}, got {number} texts")
        if not self.options.tsv and number != len(self.names):
            raise OptionError(f"--train-sets: expected {len(self.names)} texts ({names}), got {number}")


def average(results: Iterable[tuple[float, ...]], numbers: int = 1) -> tuple[float, ...]:
    """The mean of each of ``numbers`` scores over all lines not left out; NaN if there are none."""
    found = np.array([scores for scores in results if not np.isnan(scores[0])], np.float64)
    return tuple(map(float, found.mean(0))) if len(found) else (math.nan,) * numbers
