"""Beam search, as Marian does it for each sentence alone (`BeamSearch`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from mgraph.running.programs import PROGRAMS
from nmt.batches import pad
from nmt.beam import BeamLoop, BeamShape, SearchModel, Sentences, Trellis
from nmt.history import Ranking, best_hypotheses, join
from nmt.hypothesis import Hypothesis
from nmt.vocabs.base import Vocab

FIRST_CAPACITY = 48  # steps
SMALL_CACHE = 512  # hypotheses times steps
NO_LIMIT = 1e6  # target words for each source word


class BeamSearch:
    """Finds the best translations of sentences under one or several models.

    The result is what Marian finds for each sentence by itself (``--mini-batch 1``), whatever
    else is in the batch.

    - A beam holds `beam_size` hypotheses; of all their extensions by one word the best by path
      score (float32 sum of log-probabilities) go on. One that ends in ``</s>`` is finished, and
      the beam is narrower by one from then on; the search ends when all are finished.
    - A sentence of `n` source words, ``</s>`` counted, gets at most ``max_length_factor * n``
      target words (rounded up, at least one); hypotheses that are alive then count as found.
    - They are ranked by ``(path_score - word_penalty * m) / m ** normalize``, where ``m`` counts
      the target words, ``</s>`` included. Of equals the one found first is better.
    - A source without words becomes ``</s>`` with score 0, `beam_size` times.

    models: with the same target vocabulary. weights: of their log-probabilities; 1 each if None.
    source_vocab, target_vocab: say which ids are ``</s>``, unknown and control characters.
    allow_unk, allow_special: without them unknown words and control characters are never chosen;
        the probabilities of the other words stay what they are.
    n_best: return `beam_size` hypotheses of each sentence instead of one.

    Raises ValueError for options out of range, models that do not fit together and sources
    without ids.
    """

    def __init__(
        self,
        models: Sequence[SearchModel],
        weights: Sequence[float] | None = None,
        *,
        source_vocab: Vocab,
        target_vocab: Vocab,
        beam_size: int = 12,
        normalize: float = 0.0,
        word_penalty: float = 0.0,
        allow_unk: bool = False,
        allow_special: bool = False,
        max_length_factor: float = 3.0,
        n_best: bool = False,
    ) -> None:
        _check(models, weights, beam_size, max_length_factor)
        self.models = tuple(models)
        self.weights = np.asarray([1.0] * len(models) if weights is None else weights, np.float32)
        self.beam_size = beam_size
        self.ranking = Ranking(normalize, word_penalty)
        self.max_length_factor = np.float32(min(max_length_factor, NO_LIMIT))
        self.count = beam_size if n_best else 1
        self.source_eos = source_vocab.eos_id
        self.eos = target_vocab.eos_id
        unwanted = {
            *(() if allow_unk else (target_vocab.unk_id,)),
            *(() if allow_special else target_vocab.control_ids),
        }
        dim = self.models[0].dim_vocabs[-1]
        self.suppressed = tuple(sorted(word for word in unwanted if 0 <= word < dim))

    def search(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first.

        sources: word ids, each ending in ``</s>``. They are searched together as one batch,
            padded to `length_bucket` and `batch_bucket`; for a bucket that was seen before,
            nothing is compiled.
        """
        if not sources:
            return []
        for number, source in enumerate(sources):
            if not len(source):
                raise ValueError(f"source {number} has no ids, not even </s>")
        sentences = self._sentences(sources)
        trellis = self._run(sentences)
        found = best_hypotheses(trellis, sentences, self.ranking, self.eos, self.count)
        return found[: len(sources)]

    def limit(self, length: int) -> int:
        """The most target words for a source of `length` words, computed in float32 as Marian."""
        return max(1, math.ceil(self.max_length_factor * np.float32(length)))

    def _sentences(self, sources: Sequence[Sequence[int]]) -> Sentences:
        batch = pad(sources)
        limits = np.zeros(len(batch.ids), np.int32)
        limits[: batch.size] = [self.limit(len(source)) for source in sources]
        return Sentences(((batch.ids, batch.mask),), limits, batch.ids[:, 0] == self.source_eos)

    def _run(self, sentences: Sentences) -> Trellis:
        """Search on the device; what was found, as NumPy arrays.

        Caches grow in stages, so that the first words do not pay for the longest translation
        that is allowed; each stage goes on with the sentences that are left.
        """
        (batch, length), *_ = shapes = [ids.shape for ids, _ in sentences.sources]
        lengths = tuple(length for _, length in shapes)
        rows = kept = np.arange(batch, dtype=np.int32)
        params = tuple(model.params for model in self.models)
        shape = BeamShape(batch, self.beam_size, lengths, 0, 0, self.eos, self.suppressed)
        state: tuple[Any, ...] = ()
        parts = []
        for capacity in capacities(batch * self.beam_size, self.limit(length)):
            shape = replace(shape, batch=len(kept), done=shape.capacity, capacity=capacity)
            if not state:
                state = sentences, *self._call("begin", shape, params, sentences)
            *state, trellis = self._call("advance", shape, params, self.weights, *state, kept)
            step, slots, trellis = jax.device_get((state[-1].step, state[-1].slots, trellis))
            steps = int(step) - shape.done
            parts.append((rows, jax.tree.map(lambda a, end=steps: a[:end], trellis)))
            left = np.flatnonzero(slots).astype(np.int32)
            if not left.size:
                break
            rows, kept = rows[left], _filled_up(left, slots)
        return join(parts, batch)

    def _call(self, name: str, shape: BeamShape, *arguments: Any) -> Any:
        """Run a function of `BeamLoop`, compiled on first use for such arguments."""

        def function(*arguments: Any) -> Any:
            return getattr(BeamLoop(self.models, shape), name)(*arguments)

        models = tuple(model.key for model in self.models)
        shapes = tuple(a.shape for a in jax.tree.leaves(arguments))
        label = f"beam search, {name}: {shape}"
        key = ("beam search", name, models, shape, shapes)
        return PROGRAMS.get(key, label, function, arguments)(*arguments)


def capacities(hypotheses: int, limit: int) -> list[int]:
    """Numbers of steps at which the caches of so many hypotheses grow, up to `limit`.

    Each stage is a program to compile, so small caches do not grow, and large ones double.
    """
    found = []
    capacity = max(FIRST_CAPACITY, SMALL_CACHE // hypotheses)
    while capacity * 3 // 2 < limit:
        found.append(capacity)
        capacity *= 2
    return [*found, limit]


def _filled_up(kept: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """`kept` and as many rows without slots as make it one of few sizes, each a quarter."""
    size = len(slots)
    while 4 * len(kept) <= size:
        size = -(-size // 4)
    done = np.flatnonzero(slots == 0)[: size - len(kept)]
    return np.concatenate([kept, done.astype(np.int32)])


def _check(
    models: Sequence[SearchModel], weights: Sequence[float] | None, beam_size: int, factor: float
) -> None:
    if not models:
        raise ValueError("beam search needs at least one model")
    if weights is not None and len(weights) != len(models):
        raise ValueError(f"{len(models)} model(s) need as many weights, got {len(weights)}")
    dims = [model.dim_vocabs[-1] for model in models]
    if len(set(dims)) > 1:
        raise ValueError(f"models of one ensemble need the same target vocabulary, got {dims} words")
    if beam_size < 1:
        raise ValueError(f"beam_size is at least 1, got {beam_size}")
    if not 0 <= factor < math.inf:
        raise ValueError(f"max_length_factor is a number from 0, got {factor}")
