"""``BeamSearch``: beam search with Marian's results."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from mgraph import Plan, compiled
from nmt.models import Model, Source
from nmt.search.beam_loop import BeamLoop, BeamShape
from nmt.search.choice import Rules, Sampling
from nmt.search.results import Hypothesis
from nmt.search.shortlist import MULTIPLE, Shortlist
from nmt.search.trellis import FREE, Ranking, Sentences, Trellis, best_hypotheses, join
from nmt.settings import OptionError
from nmt.settings.sections import BeamOptions
from nmt.text.batches import pad, table
from nmt.text.shapes import length_bucket
from nmt.text.vocabs.base import Vocab

FIRST_CAPACITY = 48  # steps
FIRST_REORDERED = 24  # if hypotheses, and so caches, are reordered
SMALL_CACHE = 512  # hypotheses times steps
NO_LIMIT = 1e6  # target words for each source word
MOST_WORDS = 1 << 30  # of a translation, counted as int32
SEEDS = 1 << 32


class BeamSearch:
    """Finds the best translations of sentences under one or several models.

    The result is Marian's for each sentence alone (``--mini-batch 1``), whatever else is in the batch.

    - A beam holds ``beam_size`` hypotheses; each step keeps the best of all their extensions by one word, by
      path score (float32 sum of log-probabilities). A hypothesis that ends in ``</s>`` is finished, and
      narrows the beam by one. The search ends when all are finished, or when only the best is wanted and no
      living hypothesis can become it.
    - A sentence of ``n`` source words, ``</s>`` counted, gets at most ``max_length_factor * n`` target words
      (rounded up, at least one); hypotheses still alive then count as finished.
    - Hypotheses are ranked by ``(path_score - word_penalty * m) / m ** normalize`` with ``m`` target words,
      ``</s>`` included. Of equals the one found first wins.
    - A source without words becomes ``</s>`` with score 0, ``beam_size`` times.
    - Forced first words (``--force-decode``) are the only choice at their steps; the beam keeps its width for
      the steps after them. They may be unknown words; their scores are the models'.
    - With a shortlist probabilities are normalized over a sentence's candidates.
    - With sampling a path score is the sum of the noisy, normalized scores by which words were drawn.

    models: with the same target vocabulary; each reads its first ``sources`` streams.
    weights: of their log-probabilities; 1 each if None.
    source_vocab, target_vocab: tell which ids are ``</s>``, unknown and control characters.
    options: the sizes and the ranking above. Without ``allow_unk``, and without allow_special, unknown words
        and control characters are never chosen; the probabilities of other words do not change.
    skip_cost: rank by the models' unnormalized logits.
    n_best: return ``beam_size`` hypotheses of each sentence instead of one.
    shortlist: chooses the candidates of each sentence from its first source.
    sampling: how words are drawn. seed: of its noise; 0 for a different one in each process.

    Raises OptionError, a ValueError, for models that do not fit together.
    """

    def __init__(
        self,
        models: Sequence[Model],
        weights: Sequence[float] | None = None,
        *,
        source_vocab: Vocab,
        target_vocab: Vocab,
        options: BeamOptions | None = None,
        allow_special: bool = False,
        skip_cost: bool = False,
        n_best: bool = False,
        shortlist: Shortlist | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> None:
        options = options or BeamOptions()
        _check(models, weights)
        self.models = tuple(models)
        self.weights = np.asarray([1.0] * len(models) if weights is None else weights, np.float32)
        self.beam_size = options.beam_size
        self.ranking = Ranking(np.float32(options.normalize), np.float32(options.word_penalty))
        self.max_length_factor = np.float32(min(options.max_length_factor, NO_LIMIT))
        self.count = self.beam_size if n_best else 1
        self.source_vocab, self.target_vocab = source_vocab, target_vocab
        self.shortlist = shortlist
        self.seed = (seed or time.time_ns()) % SEEDS
        self.streams = max(1, *(model.sources for model in self.models))
        dim = self.models[0].dim_vocabs[-1]
        unwanted = {
            *(() if options.allow_unk else (target_vocab.unk_id,)),
            *(() if allow_special else target_vocab.control_ids),
            *range(len(target_vocab), dim),  # a model may have more ids than its vocabulary
        }
        suppressed = tuple(sorted(word for word in unwanted if 0 <= word < dim))
        self.rules = Rules(dim, target_vocab.eos_id, suppressed, skip_cost, sampling)
        probable = not skip_cost and sampling is None and bool(np.all(self.weights >= 0))
        self._bounded = probable and self.ranking.bounded  # scores of words are at most 0

    def search(
        self,
        *streams: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]] | None = None,
        numbers: Sequence[int] | None = None,
        attention: bool = False,
        count: int | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first.

        streams: for each source of the models (at least one) the sentences' word ids, each ending in
            ``</s>``. They form one batch, padded to ``length_bucket`` and ``batch_bucket``; nothing is
            compiled for a bucket seen before.
        prefixes: the first words of each translation; ``</s>`` leaves its position free.
        numbers: the sentences' numbers, which with the seed determine their noise; 0, 1, ... if None.
        attention: whether to return the first model's attention to the words of the first source.
        count: the maximum number of hypotheses per sentence; None for that of ``n_best``.

        Raises OptionError for streams that do not fit the models or each other, and for attention of a
        model without sources; ValueError for sources without ids.
        """
        self._check_streams(streams, prefixes, attention)
        if not streams[0]:
            return []
        sentences = self._sentences(streams, prefixes, numbers)
        count = self.count if count is None else count
        trellis = self._run(sentences, attention, count)
        found = best_hypotheses(trellis, sentences, self.ranking, self.rules.eos, count)
        return found[: len(streams[0])]

    def limit(self, length: int) -> int:
        """The maximum number of target words for ``length`` source words, in float32 as in Marian."""
        return min(max(1, math.ceil(self.max_length_factor * np.float32(length))), MOST_WORDS)

    def _check_streams(
        self,
        streams: Sequence[Sequence[Sequence[int]]],
        prefixes: Sequence[Sequence[int]] | None,
        attention: bool,
    ) -> None:
        if len(streams) != self.streams:
            raise OptionError(f"the models need {self.streams} source stream(s), got {len(streams)}")
        sizes = {len(stream) for stream in [*streams, *([] if prefixes is None else [prefixes])]}
        if len(sizes) > 1:
            raise OptionError(f"expected streams with the same number of sentences, got {sorted(sizes)}")
        for stream in streams:
            for number, source in enumerate(stream):
                if not len(source):
                    raise ValueError(f"source {number} has no ids, not even </s>")
        if attention:
            self.require_attention()
        if prefixes is not None:
            self.require_prefixes()

    def require_attention(self) -> None:
        """OptionError if the first model has no attention."""
        if not self.models[0].sources:
            raise OptionError("--alignment: the first model has no source, and so no attention")

    def require_prefixes(self) -> None:
        """OptionError if first words cannot be forced."""
        if self.shortlist is not None:
            raise OptionError("--force-decode cannot go with --shortlist, as in Marian")

    def _sentences(
        self,
        streams: Sequence[Sequence[Sequence[int]]],
        prefixes: Sequence[Sequence[int]] | None,
        numbers: Sequence[int] | None,
    ) -> Sentences:
        batch = pad(streams)
        limits = np.zeros(len(batch.ids[0]), np.int32)
        limits[: batch.sentences] = [self.limit(len(source)) for source in streams[0]]
        sources = tuple(map(Source, batch.ids, batch.masks))
        sentences = Sentences(sources, limits, batch.ids[0][:, 0] == self.source_vocab.eos_id)
        if prefixes is not None:
            forced, _ = _table(prefixes, len(limits), FREE)
            sentences = replace(sentences, prefixes=np.where(forced == self.rules.eos, FREE, forced))
        if self.shortlist is not None:
            lists = [self.shortlist.candidates(source).tolist() for source in streams[0]]
            most = -(-self.rules.words // MULTIPLE) * MULTIPLE
            candidates, counts = _table(lists, len(limits), 0, most)
            sentences = replace(sentences, candidates=candidates, counts=counts)
        if self.rules.sampling is not None:
            own = np.resize(np.arange(batch.sentences) if numbers is None else numbers, len(limits))
            keys = np.stack([np.full_like(own, self.seed), own], axis=1)
            sentences = replace(sentences, keys=keys.astype(np.uint32))
        return sentences

    def _run(self, sentences: Sentences, attention: bool, count: int) -> Trellis:
        """Search on the device; returns NumPy arrays.

        Caches grow in stages, so that short translations do not pay for the longest one allowed, and the
        batch shrinks as sentences finish.
        """
        (batch, length), *_ = shapes = [ids.shape for ids, _ in sentences.sources]
        lengths = tuple(length for _, length in shapes)
        params = tuple(model.params for model in self.models)
        candidates = 0 if sentences.candidates is None else sentences.candidates.shape[1]
        stages = capacities(batch, self.beam_size, self.limit(length))
        ranking = self.ranking if count == 1 and self._bounded else None
        shape = BeamShape(batch, self.beam_size, lengths, candidates, stages[0], attention, self.rules)
        encoded, beam = self._call("begin", shape, params, sentences)
        rows, done, parts = np.arange(batch), 0, []
        while True:
            beam, trellis = self._call(
                "advance", shape, params, self.weights, ranking, sentences, encoded, beam
            )
            step, slots, trellis = jax.device_get((beam.step, beam.slots, trellis))
            made = slice(done, int(step))
            parts.append((rows, jax.tree.map(lambda a, made=made: a[made], trellis)))
            left = np.flatnonzero(slots)
            if not left.size:
                return join(parts, batch)
            done = made.stop
            capacity = next(c for c in stages if c >= min(done * 4 // 3, stages[-1]) and c >= shape.capacity)
            shape = replace(shape, capacity=capacity)
            while left.size <= shape.smaller_batch < shape.batch:
                shape = replace(shape, batch=shape.smaller_batch)
            finished = np.flatnonzero(slots == 0)[: shape.batch - left.size]
            kept = np.concatenate([left, finished]).astype(np.int32)
            rows = rows[left]
            sentences, encoded, beam = self._call("regroup", shape, params, sentences, encoded, beam, kept)

    def _call(self, name: str, shape: BeamShape, *arguments: Any) -> Any:
        """Run a function of ``BeamLoop``, compiled on first use for these shapes."""
        leaves, structure = jax.tree.flatten(arguments)
        shapes = structure, *(a.shape for a in leaves)
        return compiled(BeamPlan(name, self.models, shape, shapes))(*arguments)


@dataclass(frozen=True)
class BeamPlan(Plan, by_key=["models"]):
    """A function of ``BeamLoop``, for arguments of these shapes."""

    name: str
    models: tuple[Model, ...]
    shape: BeamShape
    shapes: Hashable

    @property
    def donated(self) -> tuple[int, ...]:
        return (5,) if self.name == "advance" else ()

    def __str__(self) -> str:
        return f"beam search ({self.name}): {self.shape}"

    def __call__(self, *arguments: Any) -> Any:
        return getattr(BeamLoop(self.models, self.shape), self.name)(*arguments)


def capacities(batch: int, beam: int, limit: int) -> list[int]:
    """The capacities, in steps, through which caches grow up to ``limit``.

    Each is a program to compile, so small caches do not grow, and large ones double. A step's cost depends on
    the capacity if it copies caches, that is, if it reorders hypotheses.
    """
    found = []
    capacity = max(FIRST_CAPACITY if beam == 1 else FIRST_REORDERED, SMALL_CACHE // (batch * beam))
    while capacity * 3 // 2 < limit:
        found.append(capacity)
        capacity *= 2
    return [*found, limit]


def _table(
    rows: Sequence[Sequence[int]], count: int, filling: int, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """``rows`` padded to int32 ``[count, length_bucket]``, at most ``most`` wide, and their lengths."""
    length = length_bucket(max(map(len, rows)))
    found, inside = table(rows, (count, length if most is None else min(length, most)), filling)
    return found, inside.sum(1, dtype=np.int32)


def check_weights(weights: Sequence[float], models: int) -> None:
    """OptionError unless there is one for each model, or none."""
    if len(weights) not in (0, models):
        raise OptionError(f"expected one weight for each of {models} model(s), got {len(weights)}")


def _check(models: Sequence[Model], weights: Sequence[float] | None) -> None:
    if not models:
        raise OptionError("beam search needs at least one model")
    check_weights(weights or (), len(models))
    dims = [model.dim_vocabs[-1] for model in models]
    if len(set(dims)) > 1:
        raise OptionError(f"models of an ensemble need the same target vocabulary, got {dims} words")
