"""Sentence vectors from the encoders of models (``mgraph embed``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nmt.files import load_model
from nmt.files.metrics import MetricFile, load_metric, read_metric
from nmt.models.pooled import PooledModel, SentenceVectors
from nmt.runtime.compared import compared
from nmt.search.made_from_options import MadeFromOptions
from nmt.search.pooling import Pooling, started
from nmt.settings import OptionError
from nmt.settings.config import takes
from nmt.settings.metrics import EMBED, EmbedOptions, precision_of
from nmt.settings.model_options import described_model
from nmt.text.fields import FieldEncoder
from nmt.text.sentences import LineEncoder
from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.loading import load_vocabs


@compared
class SentenceVector(NamedTuple):
    """The vector of one line."""

    line: int
    """Its number, from 0."""
    vector: np.ndarray
    """float32 ``(dim,)``; with ``compute_similarity`` the cosine, ``(1,)``; NaN if left out."""
    problem: str = ""
    """Why the line was left out, or empty."""


class Embedder(MadeFromOptions):
    """Makes vectors of sentences with the encoder of a model; its results are those of ``mgraph embed``.

    model: path of a translation model (the vector is its encoder's first state) or of a COMET model (its
    pooled states). vocabs: path of the vocabulary. given: Marian's options of ``embed`` in snake_case with
    Marian's defaults; with ``compute_similarity`` a line is a pair of sentences, and the result is their
    cosine, or 0 if that is negative. An object of ``nmt.settings.metrics.EmbedOptions`` may be passed in
    place of ``model``.

    Raises as ``Evaluator`` does.
    """

    @takes(EMBED)
    def __init__(self, model: Any, vocabs: Any = (), **given: Any) -> None:
        options = self.options = started(EMBED, EmbedOptions, model, vocabs, given)
        self.encoder: FieldEncoder | LineEncoder
        paths = self._paths()
        self.model: PooledModel
        if file := read_metric(options.model):
            self.model, self.encoder = self._metric(file, paths)
        else:
            self.model, self.encoder = self._translation(paths)
        if options.tsv and options.tsv_fields not in (0, len(paths)):
            raise OptionError(f"--tsv-fields: {len(paths)} are needed, got {options.tsv_fields}")
        self._pooling = Pooling(self.model, options.mini_batch, options.mini_batch_words)

    def __repr__(self) -> str:
        return f"Embedder({self.model!r}; {', '.join(map(repr, self.encoder.vocabs))})"

    def embed(self, *texts: Iterable[str | bytes]) -> np.ndarray:
        """The vectors of lines, float32 ``(lines, dim)``, or with ``compute_similarity`` their cosines,
        ``(lines, 1)``."""
        found = [result.vector for result in self.vectors(*texts)]
        return np.stack(found) if found else np.zeros((0, self.model.numbers), np.float32)

    def vectors(self, *texts: Iterable[str | bytes]) -> Iterator[SentenceVector]:
        """The vectors of streams of lines, in order, ``mini_batch * maxi_batch`` lines at a time."""
        self.require_inputs(len(texts))
        names = ("first text", "second text")[: len(texts)]
        for line, found, problem in self._pooling.lines(self.encoder, texts, names, self.options.maxi_batch):
            yield SentenceVector(line, found, problem)

    def require_inputs(self, number: int) -> None:
        """OptionError unless ``number`` is the expected number of texts."""
        wanted = 1 if self.options.tsv else self.model.streams
        if number != wanted:
            raise OptionError(f"--train-sets: expected {wanted} text(s), got {number}")

    def _paths(self) -> Sequence[str]:
        """The vocabulary of each text; a single one serves both texts of a pair."""
        options, streams = self.options, 2 if self.options.compute_similarity else 1
        if len(options.vocabs) not in (1, streams):
            raise OptionError(f"--vocabs: expected {streams} of the encoder, got {len(options.vocabs)}")
        return options.vocabs * streams if len(options.vocabs) == 1 else options.vocabs

    def _vocabs(self, paths: Sequence[str], dim: int) -> list[Vocab]:
        return load_vocabs(paths, [dim] * len(paths), owner=self.options.model)

    def _metric(self, file: MetricFile, paths: Sequence[str]) -> tuple[PooledModel, FieldEncoder]:
        options = self.options
        if options.compute_similarity:
            raise OptionError("--compute-similarity: only translation models have it, as in Marian")
        vocabs = self._vocabs(paths, file.dim_vocab)
        model = load_metric(
            file,
            options,
            separator=vocabs[0].eos_id,
            precision=precision_of(options),
            embedding=True,
        )
        if model.metric.input_join_fields:
            raise OptionError(f"--model: {options.model} reads joined texts and has no sentence vectors")
        longest = min(options.max_length, model.longest or options.max_length)
        return model, FieldEncoder(vocabs, model.metric, longest, options.max_length_crop, options.tsv)

    def _translation(self, paths: Sequence[str]) -> tuple[PooledModel, LineEncoder]:
        options = self.options
        model = load_model(
            options.model,
            options=described_model(options),
            ignore_config=options.ignore_model_config,
            precision=precision_of(options),
        )
        if model.sources != 1:
            raise OptionError(
                f"--model: expected a model with one source, {options.model} has {model.sources}"
            )
        encoder = LineEncoder(
            self._vocabs(paths, model.dim_vocabs[0]),
            options.max_length,
            options.max_length_crop,
            model.options.right_left,
            options.tsv,
        )
        return SentenceVectors(model, options.compute_similarity), encoder
