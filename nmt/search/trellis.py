"""The arrays of beam search, and tracing hypotheses back through them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mgraph import register_arrays
from nmt.search.results import Hypothesis

Arrays = Mapping[str, jax.Array]

NONE = -np.inf
FREE = -1
SLACK = 1e-4  # float32 powers differ in the last digits


@register_arrays
@dataclass(frozen=True)
class Sentences:
    """What a search knows of the sentences in its rows; unused features are None.

    limits int32 ``[batch]``: the maximum number of target words.
    empty bool ``[batch]``: sources without words, whose translation is ``</s>`` with score 0.
    prefixes int32 ``[batch, steps]``: forced words, ``FREE`` for any.
    candidates int32 ``[batch, candidates]``, counts int32 ``[batch]``: the sorted shortlist of each sentence,
        padded, and its length.
    keys uint32 ``[batch, 2]``: the random key of each sentence's noise.
    """

    limits: Any
    empty: Any
    prefixes: Any = None
    candidates: Any = None
    counts: Any = None
    keys: Any = None


@register_arrays
@dataclass(frozen=True)
class Beam:
    """The state of the search between two steps.

    steps int32 ``[batch]``: the number of words of each sentence's live hypotheses.
    slots int32 ``[batch]``: how many hypotheses of each sentence may be live; 0 when it is done.
    best float32 ``[batch]``: the best score of the finished hypotheses, if the search may end early.
    words int32, paths float32 ``[batch, beam]``: last word and path score of each hypothesis.
    scores float32 ``[batch, beam, model]``: its unweighted log-probability under each model.
    decoders: the decoder state of each model, as ``Model.step`` has it.
    """

    steps: Any
    slots: Any
    best: Any
    words: Any
    paths: Any
    scores: Any
    decoders: tuple[Arrays, ...]


@register_arrays
@dataclass(frozen=True)
class Trellis:
    """Every hypothesis that was ever in a beam, step by step; for one sentence, without the axis ``batch``.

    words int32 ``[batch, step, beam]``: the last word of the hypothesis.
    origins int32 ``[batch, step, beam]``: the place of its prefix in the beam of the step before.
    paths float32 ``[batch, step, beam]``: its path score; minus infinity if there is no hypothesis.
    scores float32 ``[batch, step, beam, model]``: as in ``Beam``.
    attention float32 ``[batch, step, beam, length]``: of the word to the first source, or None.
    """

    words: Any
    origins: Any
    paths: Any
    scores: Any
    attention: Any = None


@register_arrays
@dataclass(frozen=True)
class Ranking:
    """How finished hypotheses are compared.

    A hypothesis of ``n`` words, ``</s>`` counted, has the score
    ``(path_score - word_penalty * n) / n ** normalize``, in float32 as in Marian.
    """

    normalize: Any
    word_penalty: Any

    @property
    def bounded(self) -> bool:
        """Whether ``bound`` holds: only a larger divisor can improve a score."""
        return bool(self.normalize >= 0 and self.word_penalty >= 0)

    def scores(self, paths: Any, lengths: Any) -> Any:
        """The float32 scores of hypotheses with these path scores and lengths; NumPy or JAX arrays."""
        length = lengths.astype(np.float32)
        return (paths - self.word_penalty * length) / length**self.normalize

    def bound(self, paths: Any, limits: Any) -> Any:
        """An upper bound on the score of any extension to at most ``limits`` words of hypotheses with these
        path scores, if path and word scores are at most 0."""
        return paths * np.float32(1 - SLACK) / limits.astype(np.float32) ** self.normalize


def best_hypotheses(
    trellis: Trellis, limit: int, length: int, ranking: Ranking, eos: int, count: int
) -> list[Hypothesis]:
    """The ``count`` best hypotheses of a sentence; among equals, the one that ended first.

    A hypothesis ends with ``</s>`` or after ``limit`` words. The trellis is one sentence's, in NumPy arrays.
    length: of the first source.
    """
    words, paths = trellis.words, trellis.paths
    cut = (np.arange(1, len(words) + 1) == limit)[:, None]
    steps, places = np.nonzero((paths != -np.inf) & ((words == eos) | cut))
    with np.errstate(over="ignore", divide="ignore"):  # as in Marian, the result is infinite or 0
        scores = ranking.scores(paths[steps, places], steps + 1)
    order = np.argsort(-scores, kind="stable")[:count]
    return [_traced_back(trellis, steps[i], places[i], float(scores[i]), eos, length) for i in order]


def _traced_back(trellis: Trellis, last: int, place: int, score: float, eos: int, length: int) -> Hypothesis:
    """The hypothesis in ``place`` of its beam after step ``last``, from 0."""
    places = [place]
    for step in range(last, 0, -1):
        places.append(trellis.origins[step, places[-1]])
    places.reverse()
    path = np.arange(last + 1), places
    words = trellis.words[path].tolist()
    paths = trellis.paths[path]
    attention = None if trellis.attention is None else trellis.attention[path][:, :length]
    return Hypothesis(
        words=tuple(words),
        word_scores=tuple(np.diff(paths, prepend=np.float32(0)).tolist()),
        path_score=float(paths[-1]),
        score=score,
        scorer_scores=tuple(trellis.scores[last, place].tolist()),
        finished=words[-1] == eos,
        alignment=None if attention is None else tuple(map(tuple, attention.tolist())),
    )
